// Command engine runs one test engine as a process of its own.
//
// Invariant: after SIGTERM or SIGINT it takes no new request, and a stream that was running
// ends by itself unless the drain time runs out first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"tier-agent/test/engine"
)

const maxTokenFile = 4 << 10 // bytes

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags, read.
type settings struct {
	listen string
	drain  time.Duration
	engine engine.Options
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "engine: %v\n", err)
		return 2
	}
	log := slog.New(slog.NewJSONHandler(stdout, nil))
	listener, err := net.Listen("tcp", set.listen)
	if err != nil {
		fmt.Fprintf(stderr, "engine: %v\n", err)
		return 1
	}
	eng := engine.New(set.engine)
	log.Info("listening", "address", listener.Addr().String(), "model", set.engine.Model, "instance", eng.Instance())
	if err := serve(ctx, eng, listener, set.drain); err != nil {
		fmt.Fprintf(stderr, "engine: %v\n", err)
		return 1
	}
	log.Info("stopped", "streams_cut", eng.Stats().Cut)
	return 0
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var set settings
	var tokenFile, early string
	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&set.listen, "listen", "127.0.0.1:9001", "address to listen on")
	flags.StringVar(&set.engine.Model, "model", "", "name of the model served (required)")
	flags.StringVar(&set.engine.WeightsDigest, "weights-digest", "", "digest of the weights, shown at /info")
	flags.DurationVar(&set.engine.LoadTime, "load-time", 0, "time until the model is loaded")
	flags.StringVar(&early, "early", "", `before that: "" is not healthy, "healthy" refuses completions, "empty" answers them with nothing`)
	flags.DurationVar(&set.engine.TokenDelay, "token-delay", 20*time.Millisecond, "time between two streamed tokens")
	flags.StringVar(&tokenFile, "token-file", "", "file with the bearer token that /v1 and /info ask for")
	flags.BoolVar(&set.engine.Control, "control", false, "serve /control, with which anybody who reaches the listener can break this engine")
	flags.DurationVar(&set.drain, "drain-time", 30*time.Second, "how long running streams may take to end after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	set.engine.Early = engine.Early(early)
	switch {
	case flags.NArg() > 0:
		return set, fmt.Errorf("unexpected argument %q; all settings are flags", flags.Arg(0))
	case set.engine.Model == "":
		return set, errors.New("--model is missing; give the name to serve, such as big-70b")
	case set.engine.Early != engine.EarlyUnavailable && set.engine.Early != engine.EarlyHealthy && set.engine.Early != engine.EarlyEmpty:
		return set, fmt.Errorf(`--early is %q; want "", "healthy" or "empty"`, early)
	}
	if tokenFile == "" {
		return set, nil
	}
	token, err := readToken(tokenFile)
	set.engine.Token = token
	return set, err
}

// readToken refuses an empty file: an engine that silently asks for no token is worse than
// none.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("--token-file %s is empty; it must hold the token", path)
	}
	return token, nil
}

// serve returns once the context has ended and the streams have too, or drain is over.
func serve(ctx context.Context, eng *engine.Engine, listener net.Listener, drain time.Duration) error {
	server := &http.Server{
		Handler: eng,
		// No ReadTimeout: it would run on while a long stream is being answered. The engine
		// bounds the time of each body itself.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	timeout, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	err := server.Shutdown(timeout)
	// Whatever hangs or misbehaves has had its time.
	eng.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	return err
}
