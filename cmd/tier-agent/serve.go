package main

import (
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tier-agent/internal/config"
	"tier-agent/internal/patient"
)

func (a *app) serve() *cobra.Command {
	var file, level, format string
	cmd := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run tier-agent",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A reader of the log that stops, or is gone, holds up nothing here.
			signal.Ignore(syscall.SIGPIPE)
			lines := patient.NewWriter(a.err)
			defer lines.Close(time.Second)
			log, err := logger(lines, level, format)
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

func logger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %q: give debug, info, warn or error", level)
	}
	switch options := (&slog.HandlerOptions{Level: l}); format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, usage("--log-format %q: give json or text", format)
}
