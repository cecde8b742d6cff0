package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/internal/secret"
)

func TestNothingShowsASecret(t *testing.T) {
	const marked = "marked-3f9a"
	s := secret.Of(marked)
	holder := struct {
		Name  string
		Inner struct{ Token secret.Text }
		Ptr   *secret.Text
	}{Name: "x", Ptr: &s}
	holder.Inner.Token = s
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", holder)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "token", s, "holder", holder)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "token", s, "holder", holder)
	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(asJSON)
	fmt.Fprintln(&out, fmt.Errorf("wrapped: %v", s))
	for _, form := range []string{marked, fmt.Sprintf("%x", marked), fmt.Sprintf("%X", marked)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret is in:\n%s", out.String())
		}
	}
	if strings.Count(out.String(), "[secret]") < 10 {
		t.Errorf("the word is missing in:\n%s", out.String())
	}
	if s.Reveal() != marked || s.Empty() || !(secret.Text{}).Empty() {
		t.Error("Reveal or Empty is wrong")
	}
}

func TestReadFile(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
		says string
	}{
		"plain":            {"abc\n", 0o600, "abc", ""},
		"read only":        {"  abc  ", 0o400, "abc", ""},
		"group may read":   {"abc", 0o640, "", "chmod 600"},
		"others may write": {"abc", 0o602, "", "chmod 600"},
		"empty":            {"\n", 0o600, "", "is empty"},
		"large":            {strings.Repeat("x", 65<<10), 0o600, "", "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			got, err := secret.ReadFile(path)
			if c.says == "" {
				if err != nil || got.Reveal() != c.want {
					t.Errorf("got %q, %v", got.Reveal(), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "abc") {
				t.Errorf("got %v, want %q and no content", err, c.says)
			}
		})
	}
	if _, err := secret.ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
