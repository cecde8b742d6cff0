package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/oomfleet/oomfleet/coordinator/api"
)

// client returns a client for --server, $OOMFLEET_SERVER or this machine, with
// this user's access.
func (a *app) client() (*api.Client, error) {
	c, err := api.NewClient(cmp.Or(a.server, os.Getenv("OOMFLEET_SERVER"), "http://127.0.0.1:7400"))
	if err != nil {
		return nil, wrongInput(err)
	}
	access, err := a.access()
	if err != nil {
		return nil, wrongInput(err)
	}
	c, err = c.With(access)
	return c, wrongInput(err)
}

// explain turns an API error into the command's: a bad matrix shows every
// problem with its place, wrong questions exit with 2.
func (a *app) explain(err error) error {
	var p *api.Problem
	if !errors.As(err, &p) {
		if errors.Is(err, syscall.ECONNREFUSED) && cmp.Or(a.server, os.Getenv("OOMFLEET_SERVER")) == "" {
			return fmt.Errorf("%w; that is the address where none is named: name your fleet's with --server or OOMFLEET_SERVER, or start one with fleetctl dev", err)
		}
		return err
	}
	switch p.Code {
	case api.CodeBadMatrix:
		return usagef("%s\n%s", p.Message, strings.TrimRight(p.Details.String(), "\n"))
	case api.CodeBadRequest, api.CodeNotFound, api.CodeNotCovered,
		api.CodeBadBackup, api.CodeNotEmpty, api.CodeNoToken, api.CodeBadToken, api.CodeStaleToken, api.CodeForbidden:
		return wrongInput(err)
	}
	return fmt.Errorf("%w", err)
}
