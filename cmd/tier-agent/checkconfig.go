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
	cmd := &cobra.Command{
		Use:   "check-config -c FILE",
		Short: "Check a configuration file the way serve would",
		Long:  "Check a configuration file the way serve would, and print everything that is wrong in one go.",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := config.Load(file)
			if a.json {
				return a.checkedJSON(cfg, err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is valid: %s, %s\n", file,
				count(len(cfg.Tiers), "tier"), count(len(cfg.HAProxy), "HAProxy instance"))
			return nil
		},
	}
	configFlag(cmd, &file)
	return cmd
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (a *app) checkedJSON(cfg *config.Config, err error) error {
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	checked := struct {
		Valid    bool              `json:"valid"`
		Problems []httpapi.Problem `json:"problems"`
	}{cfg != nil, []httpapi.Problem{}}
	for _, p := range problems {
		checked.Problems = append(checked.Problems, httpapi.Problem(p))
	}
	if printed := a.printJSON(checked); printed != nil {
		return printed
	}
	if err != nil {
		return &exitError{code: exitFailed}
	}
	return nil
}

func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "/etc/tier-agent/tier-agent.yaml", "configuration file")
}
