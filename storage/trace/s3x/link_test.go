package s3x_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
)

// fetch gets an address as somebody without keys does.
func fetch(t *testing.T, link string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, content
}

// TestLink: a link gives the trace that it is of, to everybody and for its time,
// and nothing else.
func TestLink(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	server := s3servertest.Start(t, s3servertest.Options{})
	c := config(server, "traces")
	c.PublicURL = server.URL() // on purpose: the server of the tests is on this machine
	store := trace.NewStore(open(t, c))
	var refs []proto.TraceRef
	for seed := range 2 {
		events, meta := tracetest.Sample(seed)
		ref, err := store.PutTrace(t.Context(), events, meta)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	made, size, err := store.Link(t.Context(), refs[0].Digest, 15*time.Minute)
	if err != nil || size != refs[0].Size {
		t.Fatalf("%d bytes, %v", size, err)
	}
	link := made.Reveal()
	if status, content := fetch(t, link); status != http.StatusOK || trace.DigestOf(content) != refs[0].Digest {
		t.Errorf("fetched %d, %d bytes", status, len(content))
	}
	if text := fmt.Sprintf("%v %+v %#v %s", made, made, made, made); strings.Contains(text, "X-Amz") {
		t.Errorf("a link shows itself: %s", text)
	}
	for what, alter := range map[string]func(u *url.URL){
		"another trace":  func(u *url.URL) { u.Path = strings.Replace(u.Path, string(refs[0].Digest), string(refs[1].Digest), 1) },
		"a longer time":  set("X-Amz-Expires", "86400"),
		"another day":    set("X-Amz-Date", "20200101T000000Z"),
		"no signature":   set("X-Amz-Signature", strings.Repeat("0", 64)),
		"the whole list": func(u *url.URL) { u.Path = "/traces" },
	} {
		t.Run(what, func(t *testing.T) {
			u, err := url.Parse(link)
			if err != nil {
				t.Fatal(err)
			}
			alter(u)
			if status, content := fetch(t, u.String()); status < 400 || status >= 500 {
				t.Errorf("got %d with %d bytes", status, len(content))
			}
		})
	}
	t.Run("expired", func(t *testing.T) {
		short, _, err := store.Link(t.Context(), refs[0].Digest, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); ; { // each fetch is a round trip
			status, _ := fetch(t, short.Reveal())
			if status == http.StatusForbidden || status == http.StatusBadRequest {
				return
			}
			if status != http.StatusOK || time.Now().After(end) {
				t.Fatalf("got %d", status)
			}
		}
	})
	server.Stop()
	if strings.Contains(server.Stdout(), "X-Amz-Signature") {
		t.Error("the server wrote links down")
	}
}

func set(name, value string) func(u *url.URL) {
	return func(u *url.URL) {
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
	}
}

// TestLinkIsForOthers: the address is the public one, and there is none for a
// store that only this machine reaches.
func TestLinkIsForOthers(t *testing.T) {
	server := s3servertest.Start(t, s3servertest.Options{})
	c := config(server, "traces")
	here := trace.NewStore(open(t, c))
	events, meta := tracetest.Sample(1)
	ref, err := here.PutTrace(t.Context(), events, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := here.Link(t.Context(), ref.Digest, time.Minute); !errors.Is(err, trace.ErrNoLink) || !strings.Contains(err.Error(), "its own machine") {
		t.Errorf("loopback: %v", err)
	}
	c.PublicURL = "https://traces.example:8443"
	public := trace.NewStore(open(t, c))
	link, _, err := public.Link(t.Context(), ref.Digest, time.Minute)
	if err != nil || !strings.HasPrefix(link.Reveal(), "https://traces.example:8443/traces/traces/"+string(ref.Digest)) {
		t.Errorf("public: %q, %v", link.Reveal(), err)
	}
	if _, _, err := public.Link(t.Context(), proto.Digest(strings.Repeat("0", 64)), time.Minute); !errors.Is(err, trace.ErrNotFound) {
		t.Errorf("a trace that is not there: %v", err)
	}
	if _, _, err := public.Link(t.Context(), "x", time.Minute); !errors.Is(err, trace.ErrNotFound) {
		t.Errorf("no digest: %v", err)
	}
	elsewhere := config(server, "traces")
	elsewhere.URL, elsewhere.Region = "https://s3.example", "eu-central-1"
	d, err := s3x.New(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if link, err := d.Link(t.Context(), "traces/x.parquet", time.Minute); err != nil || !strings.HasPrefix(link.Reveal(), "https://s3.example/traces/traces/x.parquet?") {
		t.Errorf("an external store: %v", err)
	}
}
