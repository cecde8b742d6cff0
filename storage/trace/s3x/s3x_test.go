package s3x_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	s3servertest.Main()
	goleak.VerifyTestMain(m)
}

// config reaches a server of the tests, in a bucket of the caller's choice.
func config(server *s3servertest.Server, bucket string) s3x.Config {
	return s3x.Config{URL: server.URL(), Bucket: bucket, AccessKey: s3servertest.AccessKey, SecretKey: s3servertest.SecretKey}
}

func open(t *testing.T, c s3x.Config) *s3x.Driver {
	t.Helper()
	d, err := s3x.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestDriver(t *testing.T) {
	server := s3servertest.Start(t, s3servertest.Options{})
	buckets := 0
	tracetest.Run(t, func(t *testing.T) trace.Driver {
		buckets++
		return open(t, config(server, fmt.Sprintf("suite-%d", buckets)))
	})
}

// TestDigestLabel: the digest lies beside the object, where any S3 tool shows it.
func TestDigestLabel(t *testing.T) {
	d := open(t, config(s3servertest.Start(t, s3servertest.Options{}), "traces"))
	events, meta := tracetest.Sample(1)
	ref, err := trace.NewStore(d).PutTrace(t.Context(), events, meta)
	if err != nil {
		t.Fatal(err)
	}
	key := "traces/" + string(ref.Digest) + ".parquet"
	info, err := d.Stat(t.Context(), key)
	if err != nil || info.SHA256 != ref.Digest {
		t.Errorf("stat says %+v, %v", info, err)
	}
	body, info, err := d.Open(t.Context(), key)
	if err != nil || info.SHA256 != ref.Digest {
		t.Fatalf("open says %+v, %v", info, err)
	}
	body.Close()
}

func TestOptions(t *testing.T) {
	server := s3servertest.Start(t, s3servertest.Options{})
	canary := func(t *testing.T, c s3x.Config) {
		t.Helper()
		if err := trace.NewStore(open(t, c)).Canary(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Run("md5 and path style", func(t *testing.T) {
		c := config(server, "md5")
		c.Checksum, c.PathStyle, c.Region, c.URL = s3x.ChecksumMD5, true, "us-east-1", c.URL+"/"
		canary(t, c)
	})
	t.Run("a bucket that is there", func(t *testing.T) {
		canary(t, config(server, "twice"))
		canary(t, config(server, "twice"))
	})
	t.Run("tls with our own authority", func(t *testing.T) {
		target, err := url.Parse(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		}, Transport: &http.Transport{DisableKeepAlives: true}})
		front.Config.ErrorLog = log.New(io.Discard, "", 0) // it is refused once, as it should be
		front.StartTLS()
		t.Cleanup(front.Close)
		c := config(server, "tls")
		c.URL = front.URL
		if _, err := s3x.Open(t.Context(), c); !errors.Is(err, trace.ErrRefused) || !strings.Contains(err.Error(), "option ca file") {
			t.Errorf("an unknown authority: %v", err)
		}
		c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
		if err := os.WriteFile(c.CAFile, block, 0o644); err != nil {
			t.Fatal(err)
		}
		canary(t, c)
	})
}

// TestRefused asks a real server with a wrong option each, when the driver is
// opened and when the options go wrong later (New does not connect).
func TestRefused(t *testing.T) {
	server := s3servertest.Start(t, s3servertest.Options{})
	open(t, config(server, "traces"))
	for name, tc := range map[string]struct {
		break_ func(*s3x.Config)
		option string
	}{
		"wrong secret key": {func(c *s3x.Config) { c.SecretKey = "wrong-" + c.SecretKey }, "option secret key"},
		"wrong access key": {func(c *s3x.Config) { c.AccessKey = "nobody" }, "option access key"},
		"wrong region":     {func(c *s3x.Config) { c.Region = "eu-nowhere-9" }, "option region"},
		"https to http":    {func(c *s3x.Config) { c.URL = "https://" + server.Addr }, "option url"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(server, "traces")
			tc.break_(&c)
			_, errOpen := s3x.Open(t.Context(), c)
			d, err := s3x.New(c)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			events, meta := tracetest.Sample(1)
			_, errPut := trace.NewStore(d).PutTrace(t.Context(), events, meta)
			for _, err := range []error{errOpen, errPut} {
				if !errors.Is(err, trace.ErrRefused) || !strings.Contains(err.Error(), tc.option) {
					t.Errorf("want %s: %v", tc.option, err)
				} else if strings.Contains(err.Error(), c.SecretKey) {
					t.Errorf("the error shows the secret: %v", err)
				}
			}
		})
	}
	t.Run("no bucket", func(t *testing.T) {
		d, err := s3x.New(config(server, "never-made"))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		err = trace.NewStore(d).Canary(t.Context())
		if !errors.Is(err, trace.ErrRefused) || !strings.Contains(err.Error(), "option bucket") {
			t.Error(err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := s3x.Config{URL: "http://" + listener.Addr().String(), Bucket: "traces", AccessKey: "a", SecretKey: "the-secret"}
	listener.Close()
	_, err = s3x.Open(t.Context(), c)
	if err == nil || strings.Contains(err.Error(), c.SecretKey) {
		t.Fatal(err)
	}
	for _, sentinel := range []error{trace.ErrRefused, trace.ErrNotFound, trace.ErrFull, trace.ErrCorrupt, trace.ErrClockSkew} {
		if errors.Is(err, sentinel) {
			t.Errorf("a store that is down is no reason to give up: %v", err)
		}
	}
}

// answering is a store that gives one answer to everything but bucket requests.
func answering(t *testing.T, status int, code string) *s3x.Driver {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Trim(r.URL.Path, "/") == "traces" { // the bucket itself: there
			return
		}
		if r.Method == http.MethodHead && status != http.StatusForbidden {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Date", "Tue, 04 Mar 2031 05:06:07 GMT")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>in short: %s</Message></Error>", code, code)
	}))
	t.Cleanup(server.Close)
	c := s3x.Config{URL: server.URL, Bucket: "traces", Region: "us-east-1", AccessKey: "a", SecretKey: "the-secret"}
	return open(t, c)
}

// TestAnswers covers what stores are known to answer and the test server does not.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		status int
		code   string
		want   error
		text   string
	}{
		{http.StatusForbidden, "RequestTimeTooSkewed", trace.ErrClockSkew, "check NTP"},
		{http.StatusForbidden, "QuotaExceeded", trace.ErrFull, ""},
		{http.StatusInsufficientStorage, "XMinioStorageFull", trace.ErrFull, ""},
		{http.StatusInsufficientStorage, "SomethingNew", trace.ErrFull, ""},
		{http.StatusNotImplemented, "NotImplemented", trace.ErrRefused, "option checksum"},
		{http.StatusForbidden, "AccessDenied", trace.ErrRefused, "option access key"},
		{http.StatusMovedPermanently, "PermanentRedirect", trace.ErrRefused, "option region"},
		{http.StatusNotFound, "NoSuchBucket", trace.ErrRefused, "option bucket"},
	} {
		t.Run(tc.code, func(t *testing.T) {
			events, meta := tracetest.Sample(1)
			_, err := trace.NewStore(answering(t, tc.status, tc.code)).PutTrace(t.Context(), events, meta)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), tc.code) {
				t.Errorf("%v", err)
			}
			if tc.want == trace.ErrClockSkew && !strings.Contains(err.Error(), "there 2031-03-04T05:06:07Z") {
				t.Errorf("it does not show the store's time: %v", err)
			}
		})
	}
}

// TestDiskFull fills a real disk below the server where this user may mount a
// small one; elsewhere it settles for the answer that the server gives then.
func TestDiskFull(t *testing.T) {
	server, err := s3servertest.TryStart(t, s3servertest.Options{DiskBytes: 4 << 20})
	var d *s3x.Driver
	switch {
	case errors.Is(err, s3servertest.ErrMount):
		t.Logf("no real disk, only its answer: %v", err)
		d = answering(t, http.StatusInsufficientStorage, "InsufficientStorage")
	case err != nil:
		t.Fatal(err)
	default:
		d = open(t, config(server, "traces"))
	}
	const big = 6 << 20
	err = d.Put(t.Context(), "full/x", strings.NewReader(strings.Repeat("x", big)), trace.Info{Size: big})
	if !errors.Is(err, trace.ErrFull) {
		t.Errorf("put: %v", err)
	}
	if _, err := d.Stat(context.WithoutCancel(t.Context()), "full/x"); !errors.Is(err, trace.ErrNotFound) {
		t.Errorf("stat: %v", err)
	}
}
