// Command tier-agent answers HAProxy truthfully whether a tier may take a new
// request now, and drives quiesce, drain and readmit.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
