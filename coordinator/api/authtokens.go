package api

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/internal/secret"
)

var (
	// ErrUnknownToken is returned for a token that is not in the file.
	ErrUnknownToken = errors.New("the token is unknown")
	// ErrStaleToken is returned for a token whose time is over.
	ErrStaleToken = errors.New("the token has expired")
)

// tokenPrefix begins every token, so that scanners for leaked secrets can know
// one. 256 random bits follow: nothing slower than one SHA-256 is needed to
// store it, since nobody can guess what to hash.
const tokenPrefix = "oomfleet_"

// never stands in the file for a token without an end.
const never = "never"

// Holder is one line of a token file: who may do what, until when.
type Holder struct {
	Name string
	Role Role
	// Hash is the SHA-256 of the token. The token itself is nowhere.
	Hash [sha256.Size]byte
	// Expires is the zero time for a token without an end.
	Expires time.Time
}

var holderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// NewToken draws a token. It returns the token, which is shown once, and the
// line that goes into the coordinators' token file.
func NewToken(name string, role Role, expires time.Time) (secret.Text, Holder, error) {
	if !holderName.MatchString(name) {
		return secret.Text{}, Holder{}, fmt.Errorf("a token's name has letters, digits, dots, _ and -, at most 64: %q", name)
	}
	if _, err := ParseRole(string(role)); err != nil {
		return secret.Text{}, Holder{}, err
	}
	var raw [32]byte
	rand.Read(raw[:]) // never fails, see crypto/rand
	token := secret.Of(tokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:]))
	return token, Holder{name, role, sha256.Sum256([]byte(token.Reveal())), expires.UTC().Truncate(time.Second)}, nil
}

// Line is the holder as a token file has it: role, name, end, hash.
func (h Holder) Line() string {
	end := never
	if !h.Expires.IsZero() {
		end = h.Expires.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s %s %s sha256:%s", h.Role, h.Name, end, hex.EncodeToString(h.Hash[:]))
}

// Tokens are the holders of one file, read again when it changes, so that a
// token is taken back without a restart. Check is safe for concurrent use.
type Tokens struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex // guards the rest
	holders []Holder
	seen    stamp
}

// stamp tells one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
}

// OpenTokens reads a token file. A file with a line that cannot be read is
// refused whole. log receives what happens to it later; nil drops that.
func OpenTokens(path string, log *slog.Logger) (*Tokens, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Tokens{path: path, log: log}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.readLocked(); err != nil {
		return nil, err
	}
	return t, nil
}

// Check finds the holder of a token. It compares with every line, so that the
// time it takes says nothing about which one was near.
func (t *Tokens) Check(token secret.Text, now time.Time) (Holder, error) {
	hash := sha256.Sum256([]byte(token.Reveal()))
	var found *Holder
	holders := t.current()
	for i := range holders {
		if subtle.ConstantTimeCompare(hash[:], holders[i].Hash[:]) == 1 {
			found = &holders[i]
		}
	}
	switch {
	case found == nil:
		return Holder{}, ErrUnknownToken
	case !found.Expires.IsZero() && !now.Before(found.Expires):
		return Holder{}, ErrStaleToken
	}
	return *found, nil
}

// current returns the holders, read anew if the file has changed. While the
// file cannot be read the last good state holds: a slip of the editor must not
// stop every scheduler, and the log says so at once.
func (t *Tokens) current() []Holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.path)
	if err == nil && t.seen == (stamp{info.ModTime(), info.Size()}) {
		return t.holders
	}
	if err := t.readLocked(); err != nil && t.seen != (stamp{}) {
		t.seen = stamp{} // asked again each time, told once
		t.log.Error("token file cannot be read, the tokens before the change hold", "error", err)
	}
	return t.holders
}

func (t *Tokens) readLocked() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return fmt.Errorf("read the token file: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("read the token file: %s can be written by others than its owner: chmod 600 %s", t.path, t.path)
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("read the token file: %w", err)
	}
	holders, err := parseHolders(string(text))
	if err != nil {
		return fmt.Errorf("read the token file %s: %w", t.path, err)
	}
	t.holders, t.seen = holders, stamp{info.ModTime(), info.Size()}
	return nil
}

// parseHolders reads a token file: one holder a line, # begins a comment. Its
// errors name the line and never repeat it, since somebody may have put the
// token itself there.
func parseHolders(text string) ([]Holder, error) {
	var holders []Holder
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		h, err := parseHolder(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		holders = append(holders, h)
	}
	return holders, nil
}

func parseHolder(fields []string) (Holder, error) {
	if len(fields) != 4 {
		return Holder{}, errors.New("a line has role, name, end and hash, as fleetctl token new prints it")
	}
	role, err := ParseRole(fields[0])
	if err != nil {
		return Holder{}, err
	}
	if !holderName.MatchString(fields[1]) {
		return Holder{}, errors.New("the name has other characters than letters, digits, dots, _ and -")
	}
	h := Holder{Name: fields[1], Role: role}
	if fields[2] != never {
		if h.Expires, err = time.Parse(time.RFC3339, fields[2]); err != nil {
			return Holder{}, errors.New(`the end is neither a time like 2027-01-31T00:00:00Z nor "never"`)
		}
	}
	sum, ok := strings.CutPrefix(fields[3], "sha256:")
	raw, err := hex.DecodeString(sum)
	if !ok || err != nil || len(raw) != sha256.Size {
		return Holder{}, errors.New("the hash is not sha256: and 64 hexadecimal digits; a token itself has no place here")
	}
	copy(h.Hash[:], raw)
	return h, nil
}
