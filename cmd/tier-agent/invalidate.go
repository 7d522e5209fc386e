package main

import (
	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

func (a *app) invalidate() *cobra.Command {
	var c httpapi.Command
	cmd := &cobra.Command{
		Use:   "invalidate TIER | --all",
		Short: "Void the evidence of a tier, a server or everything",
		Long: `Void evidence: what was seen before, and every probe that is out, no longer
counts. Admission stays as it is; the next probe brings new evidence.`,
		Example: "  tier-agent invalidate heavy\n  tier-agent invalidate --all",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.All && c.Server != "":
				return usage("--server and --all exclude each other; see %s --help", cmd.CommandPath())
			case c.All == (len(args) == 1), len(args) > 1:
				return usage("give either one tier or --all; see %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !c.All {
				c.Tier = args[0]
			}
			return a.transition(cmd.Context(), admission.VerbInvalidate, c, newProgress(a.err))
		},
	}
	targeted(cmd, &c.Server)
	cmd.Flags().BoolVar(&c.All, "all", false, "every tier")
	return cmd
}
