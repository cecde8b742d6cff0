package s3x_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/storage/trace/s3x"
)

func valid() s3x.Config {
	return s3x.Config{URL: "http://s3.example:9000", Bucket: "traces", AccessKey: "reader", SecretKey: "hush-hush"}
}

func TestConfigValidate(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*s3x.Config)
		want   string // empty: valid
	}{
		"plain":             {func(*s3x.Config) {}, ""},
		"https, no port":    {func(c *s3x.Config) { c.URL = "https://s3.example" }, ""},
		"trailing slash":    {func(c *s3x.Config) { c.URL += "/" }, ""},
		"ipv6":              {func(c *s3x.Config) { c.URL = "http://[::1]:9000" }, ""},
		"md5":               {func(c *s3x.Config) { c.Checksum = "md5" }, ""},
		"empty url":         {func(c *s3x.Config) { c.URL = "" }, "option url"},
		"no scheme":         {func(c *s3x.Config) { c.URL = "s3.example:9000" }, "option url"},
		"other scheme":      {func(c *s3x.Config) { c.URL = "s3://bucket" }, "option url"},
		"path":              {func(c *s3x.Config) { c.URL += "/traces" }, "option url"},
		"query":             {func(c *s3x.Config) { c.URL += "?a=b" }, "option url"},
		"no host":           {func(c *s3x.Config) { c.URL = "http://:9000" }, "option url"},
		"port out of range": {func(c *s3x.Config) { c.URL = "http://s3:99999" }, "option url"},
		"password in url":   {func(c *s3x.Config) { c.URL = "http://user:hush-hush@s3" }, "option url"},
		"unreadable url":    {func(c *s3x.Config) { c.URL = "http://hush-hush%zz" }, "option url"},
		"public url":        {func(c *s3x.Config) { c.PublicURL = "https://traces.example" }, ""},
		"bad public url":    {func(c *s3x.Config) { c.PublicURL = "https://user:hush-hush@s3" }, "option public url"},
		"no bucket":         {func(c *s3x.Config) { c.Bucket = "" }, "option bucket"},
		"bad bucket":        {func(c *s3x.Config) { c.Bucket = "Not_Valid" }, "option bucket"},
		"no access key":     {func(c *s3x.Config) { c.AccessKey = "" }, "option access key"},
		"no secret key":     {func(c *s3x.Config) { c.SecretKey = "" }, "option secret key"},
		"no ca file":        {func(c *s3x.Config) { c.CAFile = junk + ".gone" }, "option ca file"},
		"ca file is junk":   {func(c *s3x.Config) { c.CAFile = junk }, "option ca file"},
		"checksum":          {func(c *s3x.Config) { c.Checksum = "sha1" }, "option checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			c := valid()
			tc.change(&c)
			err := c.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "hush-hush") {
				t.Errorf("the error shows the secret: %v", err)
			}
			if _, errNew := s3x.New(c); (errNew == nil) != (err == nil) {
				t.Errorf("New says %v, Validate %v", errNew, err)
			}
		})
	}
	if err := (s3x.Config{}).Validate(); err == nil || strings.Count(err.Error(), "option ") < 4 {
		t.Errorf("not all problems at once: %v", err)
	}
}

func TestConfigHidesSecret(t *testing.T) {
	c := valid()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("store", "config", c)
	c.URL = "http://user:hush-hush@s3"
	driver, err := s3x.New(valid())
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(string(text), log.String(), c, fmt.Sprintf("%v %+v %#v %s %q", c, c, c, c, c), &c, driver)
	if strings.Contains(shown, "hush-hush") {
		t.Error(shown)
	}
	if !strings.Contains(shown, "reader") {
		t.Errorf("the access key should be shown: %s", shown)
	}
}
