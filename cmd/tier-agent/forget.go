package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

func (a *app) forget() *cobra.Command {
	var server httpapi.Server
	cmd := &cobra.Command{
		Use:   "forget TARGET...",
		Short: "End intents that close nothing any more",
		Long: `End the records of intents that close nothing any more: the configuration does
not name their tier or server, or names it with another address, or their host
has left. A TARGET is as status shows it: a tier, backend/server, or
backend/server@address; each has a result of its own, and one that is refused
keeps none back. Nothing is opened, and HAProxy stays as it is; what is still
closed there is said. An intent that closes its target is ended by readmit.`,
		Example: "  tier-agent forget old-tier\n  tier-agent forget heavy/h3@10.0.0.5:8000 heavy/h4@10.0.0.6:8000",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case server != "" && len(args) != 1:
				return usage("--server goes with one argument, its tier, not %d; see %s --help", len(args), cmd.CommandPath())
			case server != "" && strings.Contains(args[0], "/"):
				return usage("--server goes with its tier, and %q is a server; see %s --help", args[0], cmd.CommandPath())
			case len(args) == 0 || slices.Contains(args, ""):
				return usage("give at least one target, each a tier, backend/server or backend/server@address; see %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var failed error
			for _, target := range args {
				c := httpapi.Command{Tier: target, Server: server}
				if strings.Contains(target, "/") { // no tier's name has one
					c = httpapi.Command{Server: httpapi.Server(target)}
				}
				err := a.transition(cmd.Context(), admission.VerbForget, c, newProgress(a.err))
				var said *exitError
				if err != nil && !(errors.As(err, &said) && said.err == nil) {
					return err // no answer, and none is to be expected of the rest
				}
				if failed == nil {
					failed = err
				}
			}
			return failed
		},
	}
	targeted(cmd, &server)
	return cmd
}
