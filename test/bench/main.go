// Command bench measures tier-agent's speed, each figure beside a baseline that
// runs in the same process on the same machine in the same minute. Read the
// ratios: the figures themselves are the machine's.
package main

import (
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
)

func main() { os.Exit(run()) }

func run() int {
	agent := flag.String("agent", "bin/tier-agent", "the binary whose probing is measured")
	prober := flag.String("bare-prober", "", "internal: probe the servers of this engine and nothing else")
	only := flag.String("only", "", "the one table to print: fence, agent-check, spoe, gate or probing")
	flag.Parse()
	if *prober != "" {
		bareProber(*prober)
		return 0
	}
	printed := false
	for _, table := range []struct {
		name  string
		print func() error
	}{
		{"fence", fenceTable}, {"agent-check", agentCheckTable}, {"spoe", spoeTable}, {"gate", gateTable},
		{"probing", func() error { return probingTable(*agent) }},
	} {
		if *only != "" && *only != table.name {
			continue
		}
		printed = true
		if err := table.print(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}
	if !printed {
		fmt.Fprintf(os.Stderr, "bench: there is no table %q\n", *only)
		return 2
	}
	return 0
}

// table prints rows of columns under a title.
func table(title string, rows [][]string) error {
	fmt.Println("\n" + title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(w, "%s\t", cell)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
