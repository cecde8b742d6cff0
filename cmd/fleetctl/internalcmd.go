package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/agent/child"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/internal/s3server"
)

// internalCommand holds the hidden subcommands: this binary executed again as a
// server of `fleetctl dev`, as the guard of a runner or as a simulated GPU.
func (a *app) internalCommand() *cobra.Command {
	c := &cobra.Command{Use: "internal", Short: "Processes that fleetctl starts itself", Hidden: true}
	c.AddCommand(a.natsCommand(), a.s3Command(), a.guardCommand(), a.simRunnerCommand(), a.simRunCommand())
	return c
}

// ready tells the parent that a server can be used: one line on stdout.
func (a *app) ready(address string) { fmt.Fprintln(a.out, address) }

func (a *app) natsCommand() *cobra.Command {
	var cfg natsserver.Config
	c := &cobra.Command{Use: "nats", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		cfg.Ready = a.ready
		cfg.Log = a.logger()
		return natsserver.Run(untilParentEnds(cmd.Context()), cfg)
	}}
	c.Flags().StringVar(&cfg.Dir, "dir", "", "data folder")
	c.Flags().StringVar(&cfg.Addr, "addr", "", "host:port")
	c.Flags().StringVar(&cfg.UsersFile, "users", "", "file with the authorization block")
	c.Flags().StringVar(&cfg.CertFile, "cert", "", "PEM file of the certificate, for TLS")
	c.Flags().StringVar(&cfg.KeyFile, "key", "", "PEM file of its key")
	return c
}

func (a *app) s3Command() *cobra.Command {
	var cfg s3server.Config
	c := &cobra.Command{Use: "s3", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		cfg.AccessKey, cfg.SecretKey = os.Getenv(config.EnvAccessKey), os.Getenv(config.EnvSecretKey)
		cfg.Ready = a.ready
		return s3server.Run(untilParentEnds(cmd.Context()), cfg)
	}}
	c.Flags().StringVar(&cfg.Dir, "dir", "", "data folder")
	c.Flags().StringVar(&cfg.Addr, "addr", "", "host:port")
	c.Flags().StringVar(&cfg.CertFile, "cert", "", "PEM file of the certificate, for TLS")
	c.Flags().StringVar(&cfg.KeyFile, "key", "", "PEM file of its key")
	return c
}

func (a *app) guardCommand() *cobra.Command {
	return &cobra.Command{Use: "guard", DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
		if code := child.Guard(args); code != 0 {
			return &codedError{code, errors.New("")}
		}
		return nil
	}}
}

// untilParentEnds is ctx, ended also when stdin reaches its end: the parent of
// a server holds the other end, and its death must end the server.
func untilParentEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with the process
		buf := make([]byte, 1)
		for {
			if _, err := os.Stdin.Read(buf); err != nil {
				cancel(errors.New("the parent process ended"))
				return
			}
		}
	}()
	return ctx
}
