package s3x

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/storage/trace"
)

var _ trace.Linker = (*Driver)(nil)

// Link implements trace.Linker with a presigned GET. The host is part of what is
// signed, so the address is made for the one that others use: Config.PublicURL,
// else URL unless that is this machine's alone. Nothing is sent to the public
// address; it need not be reachable from here.
func (d *Driver) Link(ctx context.Context, key string, within time.Duration) (secret.Text, error) {
	if !trace.ValidKey(key) {
		return secret.Text{}, fmt.Errorf("link: %q is not a key of the trace store", key)
	}
	public := d.config
	if public.PublicURL != "" {
		public.URL = public.PublicURL
	} else if u, err := public.endpoint(); err != nil || loopback(u) {
		return secret.Text{}, fmt.Errorf("link: %w: it listens on its own machine only", trace.ErrNoLink)
	}
	if public.Region == "" { // else the client would ask the public address for it
		region, err := d.core.GetBucketLocation(ctx, d.config.Bucket)
		if err != nil {
			return secret.Text{}, fmt.Errorf("link %s: %w", key, d.classify(err))
		}
		if public.Region = region; region == "" {
			public.Region = defaultRegion
		}
	}
	core, transport, err := public.client()
	if err != nil {
		return secret.Text{}, fmt.Errorf("link %s: %w: %w", key, trace.ErrRefused, err)
	}
	defer transport.CloseIdleConnections()
	link, err := core.PresignedGetObject(ctx, d.config.Bucket, key, within, nil)
	if err != nil {
		return secret.Text{}, fmt.Errorf("link %s: %w", key, d.classify(err))
	}
	return secret.Of(link.String()), nil
}

// defaultRegion is what a bucket without a location constraint lies in.
const defaultRegion = "us-east-1"

// loopback reports whether an address reaches this machine alone. A name other
// than localhost may be anywhere.
func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
