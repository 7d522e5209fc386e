package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
)

func (a *app) reload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make the running tier-agent read its configuration again",
		Long: `Make the running tier-agent read its configuration again, as SIGHUP does: the
file is checked whole, and then taken over whole or not at all. What has not
changed goes on undisturbed. haproxy, listen and state_dir need a restart.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.client().Reload(cmd.Context())
			if err != nil {
				return unanswered(cmd.Context(), httpapi.VerbReload, err)
			}
			return a.reloaded(r)
		},
	}
}

// reloaded prints what came of a reload. What is wrong in the file is printed as
// check-config does.
func (a *app) reloaded(r httpapi.Reload) error {
	var err error
	if a.json {
		err = a.printJSON(r)
	} else {
		_, err = fmt.Fprintf(a.out, "%s: %s\n", r.Outcome, r.Message)
	}
	if err != nil {
		return unprinted(r.Outcome, r.Message, err)
	}
	if r.Outcome == admission.Done {
		return nil
	}
	var problems config.Problems
	for _, p := range r.Problems {
		problems = append(problems, config.Problem(p))
	}
	if a.json || problems == nil {
		return &exitError{code: exitFailed}
	}
	return &exitError{code: exitFailed, err: problems}
}
