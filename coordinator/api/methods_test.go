package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// only drops an answer that another test looks at.
func only[T any](_ T, err error) error { return err }

// closing is only for a stream.
func closing(content io.ReadCloser, err error) error {
	if err == nil {
		_, err = io.Copy(io.Discard, content)
		err = errors.Join(err, content.Close())
	}
	return err
}

// without is the answer of a coordinator that has no cluster.
func without[T any](_ T, err error) error {
	var p *api.Problem
	if errors.As(err, &p) && p.Code == api.CodeUnavailable {
		return nil
	}
	return fmt.Errorf("a coordinator without a cluster answers %w", err)
}

// TestEveryMethodOfTheClient calls every public method of the Go client against
// a running server; what the answers say is tested elsewhere.
func TestEveryMethodOfTheClient(t *testing.T) {
	c, leader, follower, digest := rolledOut(t)
	client := c.client(follower, leader)
	var backup bytes.Buffer
	sub := submission()
	reply, err := client.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	q := func(text string) url.Values { return query(t, text) }
	calls := map[string]func(context.Context) error{
		"Submit": func(ctx context.Context) error { return only(client.Submit(ctx, sub)) },
		"Sweep":  func(ctx context.Context) error { return only(client.Sweep(ctx, reply.Matrix.ID)) },
		"Sweeps": func(ctx context.Context) error { return only(client.Sweeps(ctx)) },
		"Cancel": func(ctx context.Context) error { return only(client.Cancel(ctx, reply.Matrix.ID)) },
		"Agents": func(ctx context.Context) error { return only(client.Agents(ctx)) },
		"Drain": func(ctx context.Context) error {
			if err := c.queue.Announce(ctx, proto.AgentInfo{ID: "gpu-1"}, time.Minute); err != nil {
				return err
			}
			return only(client.Drain(ctx, "gpu-1", api.Drain{WithinSeconds: 60}))
		},
		"Collect": func(ctx context.Context) error {
			_, err := client.Collect(ctx, api.Collect{KeepSeconds: 86400, DryRun: true})
			var p *api.Problem
			if errors.As(err, &p) && p.Code == api.CodeRefused { // this server's coordinator has no trace store to look through
				return nil
			}
			return errors.Join(errors.New("it was not refused"), err)
		},
		"Status":             func(ctx context.Context) error { return only(client.Status(ctx)) },
		"LeaderStatus":       func(ctx context.Context) error { return only(client.LeaderStatus(ctx)) },
		"Coefficients":       func(ctx context.Context) error { return only(client.Coefficients(ctx, q("origin=measured"))) },
		"CoefficientHistory": func(ctx context.Context) error { return only(client.CoefficientHistory(ctx, q("revision=1"))) },
		"Boundaries":         func(ctx context.Context) error { return only(client.Boundaries(ctx, q("seq_len=64"))) },
		"BoundaryHistory":    func(ctx context.Context) error { return only(client.BoundaryHistory(ctx, cell(64).ID(), nil)) },
		"Programs":           func(ctx context.Context) error { return only(client.Programs(ctx, nil)) },
		"Import":             func(ctx context.Context) error { return only(client.Import(ctx, []proto.Coefficients{imported(1)})) },
		"Traces":             func(ctx context.Context) error { return only(client.Traces(ctx, "all")) },
		"Trace":              func(ctx context.Context) error { return closing(client.Trace(ctx, digest)) },
		"TraceURL": func(ctx context.Context) error { // this fleet's store is a folder
			_, err := client.TraceURL(ctx, digest)
			var p *api.Problem
			if errors.As(err, &p) && p.Code == api.CodeRefused {
				return nil
			}
			return errors.Join(errors.New("it was not refused"), err)
		},
		"Quota":     func(ctx context.Context) error { return only(client.Quota(ctx, q("seq_len=64"))) },
		"MaxSeqLen": func(ctx context.Context) error { return only(client.MaxSeqLen(ctx, q("quota_bytes=8589934592"))) },
		"MaxBatch": func(ctx context.Context) error {
			return only(client.MaxBatch(ctx, q("quota_bytes=8589934592&seq_len=64")))
		},
		"Replicas": func(ctx context.Context) error {
			return only(client.Replicas(ctx, q("seq_len=64&card_memory_bytes=85899345920")))
		},
		"CompareQuotas": func(ctx context.Context) error {
			return only(client.CompareQuotas(ctx, q("seq_len=64&with=seq_len%3D128")))
		},
		"CompareSweeps": func(ctx context.Context) error { return only(client.CompareSweeps(ctx, q("after=new"))) },
		"Repeat": func(ctx context.Context) error {
			return only(client.Repeat(ctx, "all", api.Repetition{Cells: []proto.CellID{cell(64).ID()}, Repeats: 1}))
		},
		"Backup": func(ctx context.Context) error {
			content, err := client.Backup(ctx, true)
			if err != nil {
				return err
			}
			return errors.Join(only(backup.ReadFrom(content)), content.Close())
		},
		"Restore": func(ctx context.Context) error { return only(client.Restore(ctx, backup.Bytes(), true)) },
		"Watch": func(ctx context.Context) error {
			err := client.Watch(ctx, api.WatchOptions{Since: ptr(uint64(0))}, func(api.Event) error { return errEnough })
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		},
		// This cluster is none of raft's; TestClusterChanges has one.
		"Cluster": func(ctx context.Context) error { return without(client.Cluster(ctx)) },
		"Join":    func(ctx context.Context) error { return without(client.Join(ctx, api.NewMember{ID: "n3"})) },
		"Remove":  func(ctx context.Context) error { return without(client.Remove(ctx, "n3")) },
		"With":    func(context.Context) error { return only(client.With(api.Access{})) },
	}
	var names []string
	for m := range reflect.TypeFor[*api.Client]().Methods() {
		names = append(names, m.Name)
	}
	if called := slices.Sorted(maps.Keys(calls)); !slices.Equal(names, called) {
		t.Errorf("the client has %v, and called are %v", names, called)
	}
	for _, name := range names { // in the alphabet's order, which takes the backup before it is restored
		if call := calls[name]; call != nil {
			if err := call(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
