package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
)

func (a *app) tokenCommand() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Make tokens for the coordinators' API"}
	c.AddCommand(a.tokenNewCommand())
	return c
}

// newToken are the flags of one new token.
type newToken struct {
	role, name, file, add string
	expires               time.Duration
}

func (a *app) tokenNewCommand() *cobra.Command {
	var f newToken
	c := &cobra.Command{Use: "new", Short: "Make a token", Args: cobra.NoArgs,
		Long: `Make a token. It is shown once, or written to a file with --out; the
coordinators keep its hash alone. The hash's line goes into the file that
api.tokens_file of the configuration names, on every coordinator: a running one
reads it at the next request. Removing the line takes the token back.`,
		Example: "  fleetctl token new --role read --name scheduler --expires 2160h --out scheduler.token --add /etc/oomfleet/tokens",
		RunE:    func(*cobra.Command, []string) error { return a.makeToken(f) }}
	fl := c.Flags()
	fl.StringVar(&f.role, "role", "", "read, write or admin (required)")
	fl.StringVar(&f.name, "name", "", "who will hold it; shown in logs (required)")
	fl.DurationVar(&f.expires, "expires", 0, "how long it is good for, like 2160h (default: for ever)")
	fl.StringVar(&f.file, "out", "", "write the token to this new file, for its owner alone, and do not show it")
	fl.StringVar(&f.add, "add", "", "append the hash's line to this token file")
	c.MarkFlagRequired("role")
	c.MarkFlagRequired("name")
	return c
}

func (a *app) makeToken(f newToken) error {
	role, err := api.ParseRole(f.role)
	if err != nil {
		return wrongInput(err)
	}
	var end time.Time
	if f.expires < 0 {
		return usagef("--expires %s is over already", f.expires)
	}
	if f.expires > 0 {
		end = time.Now().Add(f.expires)
	}
	token, holder, err := api.NewToken(f.name, role, end)
	if err != nil {
		return wrongInput(err)
	}
	shown := token.Reveal()
	if f.file != "" {
		if err := writePrivate(f.file, shown); err != nil {
			return err
		}
		shown = ""
	}
	if f.add != "" {
		if err := appendLine(f.add, holder.Line()); err != nil {
			return err
		}
	}
	if a.json {
		return json.NewEncoder(a.out).Encode(struct {
			Token string `json:"token,omitempty"`
			Line  string `json:"line"`
		}{shown, holder.Line()})
	}
	if shown != "" {
		fmt.Fprintf(a.out, "token  %s\n", shown)
	}
	fmt.Fprintf(a.out, "line   %s\n", holder.Line())
	return nil
}

// writePrivate makes a file that its owner alone can read. It replaces none: a
// secret that is overwritten cannot be had back.
func writePrivate(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s is there already: name another file, or remove it", path)
	}
	if err != nil {
		return fmt.Errorf("write the secret: %w", err)
	}
	_, err = fmt.Fprintln(f, text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the secret: %w", err)
	}
	return nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("add the token's line: %w", err)
	}
	_, err = fmt.Fprintln(f, line)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("add the token's line: %w", err)
	}
	return nil
}
