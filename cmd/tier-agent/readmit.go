package main

import (
	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

func (a *app) readmit() *cobra.Command {
	var c httpapi.Command
	cmd := &cobra.Command{
		Use:   "readmit TIER",
		Short: "Open a quiesced tier again, on fresh evidence",
		Long: `Open a quiesced tier again: evidence from before is invalidated, every server is
probed anew, HAProxy is opened and read back, and must show every server up.
Anything else leaves the tier quiesced, and says why.

With --when-ready the quiesce is ended though the servers are not ready: nothing is
opened by that, but each server as soon as its evidence is ready.`,
		Example: "  tier-agent readmit heavy",
		Args:    exactly("TIER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Tier = args[0]
			return a.transition(cmd.Context(), admission.VerbReadmit, c, newProgress(a.err))
		},
	}
	targeted(cmd, &c.Server)
	cmd.Flags().BoolVar(&c.AllowUnidentified, "allow-unidentified", false, "accept health alone of a tier that compares no identity and no metadata")
	cmd.Flags().BoolVar(&c.Partial, "partial", false, "accept min_ready ready servers; the others stay out on their own evidence")
	cmd.Flags().BoolVar(&c.TakeHold, "take-hold", false, "open also servers that somebody else drained or disabled in HAProxy")
	cmd.Flags().BoolVar(&c.KeepHold, "keep-hold", false, "leave those as they are, and open the rest")
	cmd.Flags().BoolVar(&c.SetAddress, "set-address", false, "make HAProxy send to where evidence is taken, where the two differ")
	cmd.Flags().StringVar(&c.Wait, "wait", "", "how long to wait for probes from before, such as 10s")
	cmd.Flags().StringVar(&c.Confirm, "confirm", "", "how long HAProxy may take to show every server up, such as 2m; by default as long as its checks get further")
	cmd.Flags().StringVar(&c.Without, "without", "", "do without these HAProxy instances, which are known to be gone (comma-separated)")
	cmd.Flags().BoolVar(&c.WhenReady, "when-ready", false, "end the quiesce and leave the servers to their evidence, though they are not ready now")
	cmd.MarkFlagsMutuallyExclusive("take-hold", "keep-hold")
	return cmd
}
