package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the build: -ldflags "-X main.version=...".
var version = "dev"

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(),
		RunE:  func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	if a.json {
		return a.printJSON(map[string]string{"version": version, "go": runtime.Version()})
	}
	_, err := fmt.Fprintf(a.out, "tier-agent %s (%s)\n", version, runtime.Version())
	return err
}
