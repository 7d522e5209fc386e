package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"tier-agent/internal/config"
)

func (a *app) serve() *cobra.Command {
	var file, level, format string
	cmd := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run tier-agent",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := a.logger(level, format)
			if err != nil {
				return err
			}
			cfg, err := config.Start(file)
			if err != nil {
				return err
			}
			// Not before the file has been read: a pipe may have nobody who writes.
			ctx, stop := signals(cmd.Context())
			defer stop()
			return serve(ctx, cfg, log)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&format, "log-format", "json", "json or text")
	return cmd
}

func (a *app) logger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %q: give debug, info, warn or error", level)
	}
	switch options := (&slog.HandlerOptions{Level: l}); format {
	case "json":
		return slog.New(slog.NewJSONHandler(a.err, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(a.err, options)), nil
	}
	return nil, usage("--log-format %q: give json or text", format)
}
