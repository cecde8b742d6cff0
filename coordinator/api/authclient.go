package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/oomfleet/oomfleet/internal/secret"
)

// Access is how a client shows who it is, and whom it trusts. The zero value
// sends no token and trusts what the system does.
type Access struct {
	// Token is sent to every coordinator, but only over TLS or to this
	// machine: over plain HTTP anybody on the way could keep it.
	Token secret.Text
	// TLS says whom to trust; nil is the system's authorities.
	TLS *tls.Config
	// Insecure sends the token over plain HTTP all the same.
	Insecure bool
}

// errPlain refuses to show a token to a network.
var errPlain = errors.New("its address is plain http:// and leaves this machine, so the token would be readable on the way: use https://, or --insecure if the network is yours alone")

// With returns a client that asks the same coordinators with this access. It
// fails when one of them could only be shown the token in plain text.
func (c *Client) With(a Access) (*Client, error) {
	transport := c.http.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig = a.TLS
	if a.TLS != nil {
		transport.ForceAttemptHTTP2 = true
	}
	for _, base := range c.bases {
		u, err := url.Parse(base)
		if err != nil {
			return nil, fmt.Errorf("coordinator address %q: %w", base, err)
		}
		if !a.Token.Empty() && !a.Insecure && !private(u) {
			return nil, fmt.Errorf("coordinator at %s: %w", base, errPlain)
		}
	}
	// A token is for the coordinators that were named, so no redirect is followed.
	return &Client{bases: c.bases, http: &http.Client{Transport: transport, CheckRedirect: stay}, token: a.Token}, nil
}

// stay makes a redirect an answer like any other.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// private reports whether nobody else can read what is sent to u: it goes over
// TLS, or does not leave this machine.
func private(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// show adds the token to a request, if there is one.
func show(r *http.Request, token secret.Text) {
	if !token.Empty() {
		r.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
}

// peerTransport is how a follower reaches its leader. It uses no proxy: the
// coordinators know one another by their own addresses.
func peerTransport(a Access) *http.Transport {
	return &http.Transport{TLSClientConfig: a.TLS, ForceAttemptHTTP2: a.TLS != nil, IdleConnTimeout: time.Minute}
}
