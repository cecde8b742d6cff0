// Package secret owns the one type that carries a token, a key or a password
// through the program. It refuses to show it: printed in any way, logged or put
// into JSON or YAML, a secret is the word "[secret]". Only Reveal gives it away,
// so a search for that word finds every place where one leaves.
//
// Start reading at Text.
package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
)

// hidden is what a secret looks like everywhere.
const hidden = "[secret]"

// maxFile bounds a file that is to hold one secret, in bytes.
const maxFile = 64 << 10

// Text is a secret. The zero value is none.
type Text struct{ value string }

// Of makes a secret of a text.
func Of(value string) Text { return Text{value} }

// Reveal is the secret itself. Hand it to the one call that needs it.
func (t Text) Reveal() string { return t.value }

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return t.value == "" }

// String is a constant, so that %s and %v show nothing.
func (t Text) String() string {
	if t.Empty() {
		return ""
	}
	return hidden
}

// GoString is String, so that %#v shows nothing.
func (t Text) GoString() string { return t.String() }

// Format answers every verb with String: %x and %q would else reach the field.
func (t Text) Format(f fmt.State, _ rune) {
	io.WriteString(f, t.String()) //nolint:errcheck // fmt has nowhere to report it
}

// LogValue is String, so that a logger shows nothing.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText is String, so that JSON and YAML show nothing.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ReadFile reads a secret out of a file, without the white space around it. It
// refuses a file that others than its owner may read or write, an empty one,
// and one too large to be a secret. Its errors never repeat the content.
func ReadFile(path string) (Text, error) {
	f, err := os.Open(path)
	if err != nil {
		return Text{}, fmt.Errorf("read the secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Text{}, fmt.Errorf("read the secret: %w", err)
	}
	if err := private(path, info); err != nil {
		return Text{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Text{}, fmt.Errorf("read the secret: %w", err)
	}
	value := strings.TrimSpace(string(text))
	switch {
	case len(text) > maxFile:
		return Text{}, fmt.Errorf("read the secret: %s has more than %d bytes", path, maxFile)
	case value == "":
		return Text{}, fmt.Errorf("read the secret: %s is empty", path)
	}
	return Text{value}, nil
}

// ErrReadable is returned for a secret's file that others may read or write.
var ErrReadable = errors.New("others than its owner may read or write it")

// Private reports an error when others than its owner may read or write a file
// that holds a secret, and when it cannot be looked at.
func Private(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at the secret: %w", err)
	}
	return private(path, info)
}

func private(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s holds a secret and %w: chmod 600 %s", path, ErrReadable, path)
	}
	return nil
}
