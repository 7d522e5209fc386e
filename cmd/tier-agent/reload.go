package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
)

func (a *app) reload() *cobra.Command {
	acceptClosing := false
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the running tier-agent read its configuration again",
		Long: `Make the running tier-agent read its configuration again: the file is checked
whole, and then taken over whole or not at all. What has not changed goes on
undisturbed. haproxy, listen and state_dir need a restart.

A reload that would take the evidence from something that serves now, by another
url or identity or by removing it, names that and is refused. Quiesce it first,
or say --accept-closing. SIGHUP cannot ask: it reloads, and logs what it closes.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.client().Reload(cmd.Context(), acceptClosing)
			if err != nil {
				return unanswered(cmd.Context(), httpapi.VerbReload, err)
			}
			return a.reloaded(r)
		},
	}
	cmd.Flags().BoolVar(&acceptClosing, "accept-closing", false, "reload although that closes something that serves now")
	return cmd
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
