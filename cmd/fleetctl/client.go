package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
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
		if hint := a.unreached(err); hint != "" {
			return fmt.Errorf("%w; %s", err, hint)
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
	if p.Code == api.CodeNoLeader {
		return fmt.Errorf("%w; fleetctl cluster status says which are silent", err)
	}
	return fmt.Errorf("%w", err)
}

// unreached is what to do about a coordinator that could not be asked, empty where
// the error says enough.
func (a *app) unreached(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	named := cmp.Or(a.server, os.Getenv("OOMFLEET_SERVER"))
	switch {
	case err == nil:
		return ""
	case errors.As(err, &authority):
		return "it is running, and its certificate is of an authority that is not trusted here: name the fleet's with --ca or OOMFLEET_CA"
	case errors.As(err, &host):
		return "it is running: ask it by a name of its certificate, or make one for this name with fleetctl secure certificate --host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "it is running: renew its certificate, or set this machine's clock"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it speaks plain http: write http:// in --server or OOMFLEET_SERVER"
	case strings.Contains(named, "http://") && strings.Contains(err.Error(), "400 Bad Request"):
		return "a coordinator with TLS is asked with https:// in --server or OOMFLEET_SERVER"
	case errors.Is(err, syscall.ECONNREFUSED) && named == "":
		return "that is the address where none is named: name your fleet's with --server or OOMFLEET_SERVER, or start one with fleetctl dev"
	}
	return ""
}
