package main

import (
	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

func (a *app) quiesce() *cobra.Command {
	var c httpapi.Command
	cmd := &cobra.Command{
		Use:   "quiesce TIER --reason WORD",
		Short: "Close a tier: no new request, running ones go on",
		Long: `Close a tier: tier-agent refuses it at once, its evidence is invalidated, and
its servers are drained in every HAProxy and read back. Running streams go on;
"tier-agent drain" waits for them. Quiescing twice keeps the first reason.`,
		Example: "  tier-agent quiesce heavy --reason swap-to-v2",
		Args:    exactly("TIER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("reason") {
				return usage("--reason is missing: say why, in 1 to 128 of the characters A-Z a-z 0-9 _ . -")
			}
			// What tier-agent would refuse is said before a socket is opened.
			if !admission.ValidReason(c.Reason) {
				return usage("--reason %.140q: give 1 to 128 of the characters A-Z a-z 0-9 _ . -", c.Reason)
			}
			c.Tier = args[0]
			return a.transition(cmd.Context(), admission.VerbQuiesce, c, newProgress(a.err))
		},
	}
	targeted(cmd, &c.Server)
	cmd.Flags().BoolVar(&c.Rollback, "rollback", false, "open everything again where not every HAProxy confirms")
	cmd.Flags().StringVar(&c.Without, "without", "", "do without these HAProxy instances, which are known to be gone (comma-separated)")
	cmd.Flags().BoolVar(&c.AcceptQueueRelease, "accept-queue-release", false, "quiesce although HAProxy may release a server's queue onto it at once")
	cmd.Flags().BoolVar(&c.Force, "force", false, "quiesce a server although fewer than min_ready others serve")
	cmd.Flags().StringVar(&c.Reason, "reason", "", "why; 1 to 128 of A-Z a-z 0-9 _ . - (required)")
	return cmd
}
