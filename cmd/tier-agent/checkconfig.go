package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
)

func (a *app) checkConfig() *cobra.Command {
	var file string
	var strict, live bool
	cmd := &cobra.Command{
		Use:   "check-config -c FILE",
		Short: "Check a configuration file the way serve would",
		Long: `Check a configuration file the way serve would, and print everything that is
wrong in one go. The secrets that it names are read. A remark is about something
that is valid, and lacks a protection or is hardly meant; serve logs those too.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Check(file)
			var problems config.Problems
			if err != nil && (!a.json || !errors.As(err, &problems)) {
				return err
			}
			var remarks config.Problems
			if cfg != nil {
				if remarks = cfg.Remarks; live {
					ctx, stop := signals(cmd.Context())
					defer stop()
					remarks = append(remarks, liveRemarks(ctx, cfg)...)
				}
			}
			if err := a.checked(cfg, problems, remarks); err != nil {
				return err
			}
			if problems != nil || strict && len(remarks) > 0 {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&strict, "strict", false, "fail on remarks too")
	cmd.Flags().BoolVar(&live, "live", false, "ask each HAProxy whether it has the servers")
	return cmd
}

// checked prints what came of a check.
func (a *app) checked(cfg *config.Config, problems, remarks config.Problems) error {
	if a.json {
		return a.printJSON(struct {
			Valid    bool              `json:"valid"`
			Problems []httpapi.Problem `json:"problems"`
			Remarks  []httpapi.Problem `json:"remarks"`
		}{cfg != nil, asJSON(problems), asJSON(remarks)})
	}
	for _, remark := range remarks {
		fmt.Fprintln(a.err, printable(remarked(remark)))
	}
	said := ""
	if len(remarks) > 0 {
		said = ", " + count(len(remarks), "remark")
	}
	_, err := fmt.Fprintf(a.out, "%s is valid: %s, %s%s\n", cfg.File,
		count(len(cfg.Tiers), "tier"), count(len(cfg.HAProxy), "HAProxy instance"), said)
	return err
}

// remarked is a remark on a line of its own.
func remarked(p config.Problem) string {
	p.Path = "remark: " + p.Path
	return p.String()
}

func asJSON(problems config.Problems) []httpapi.Problem {
	all := []httpapi.Problem{}
	for _, p := range problems {
		all = append(all, httpapi.Problem(p))
	}
	return all
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "/etc/tier-agent/tier-agent.yaml", "configuration file")
}
