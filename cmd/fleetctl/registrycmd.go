package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func (a *app) registryCommand() *cobra.Command {
	c := &cobra.Command{Use: "registry", Short: "Back up and restore all that the coordinators know"}
	a.serverFlag(c)
	c.AddCommand(a.backupCommand(), a.restoreCommand())
	return c
}

func (a *app) backupCommand() *cobra.Command {
	var file string
	var stale bool
	c := &cobra.Command{Use: "backup -o FILE", Short: "Write the registry to one file", Args: cobra.NoArgs,
		Long: `Backup writes sweeps, cells with their runs and boundaries, coefficients with
their history and programs to one file, as of now. The file has a version and a
checksum, and is read back before the command ends. Traces are not in it: they
are in the trace store under the digests that the registry names.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			content, err := client.Backup(cmd.Context(), !stale)
			if err != nil {
				return a.explain(err)
			}
			defer content.Close()
			var text bytes.Buffer
			var view registry.View
			err = a.toFile(file, func(w io.Writer) error {
				if _, err := io.Copy(io.MultiWriter(w, &text), content); err != nil {
					return fmt.Errorf("read the backup: %w", err)
				}
				view, err = readBackup(text.Bytes())
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.errOrOut(file), backedUp(view, text.Len()))
			}
			_, err = fmt.Fprintf(a.err, "%s: %s and %s at entry %d, %d bytes\n", file, counted(len(view.Records), "cell"),
				counted(len(view.Coefficients), "group"), view.AppliedIndex, text.Len())
			return err
		}}
	c.Flags().StringVarP(&file, "output", "o", "", "the file, - for stdout (required)")
	c.Flags().BoolVar(&stale, "any-replica", false, "take what the answering coordinator has, also when there is no leader")
	c.MarkFlagRequired("output")
	return c
}

// errOrOut is stdout, unless the backup itself goes there.
func (a *app) errOrOut(file string) io.Writer {
	if file == "-" {
		return a.err
	}
	return a.out
}

// backupSummary is what is in a backup.
type backupSummary struct {
	Index        uint64 `json:"index"`
	Sweeps       int    `json:"sweeps"`
	Cells        int    `json:"cells"`
	Coefficients int    `json:"coefficients"`
	Programs     int    `json:"programs"`
	Content      string `json:"content_hash"`
	Bytes        int    `json:"file_bytes"`
}

func backedUp(v registry.View, size int) backupSummary {
	return backupSummary{Index: v.AppliedIndex, Sweeps: len(v.Sweeps), Cells: len(v.Records), Coefficients: len(v.Coefficients),
		Programs: len(v.Programs), Content: v.Content(), Bytes: size}
}

// readBackup looks at a whole backup, as the coordinators would.
func readBackup(file []byte) (registry.View, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return registry.View{}, errors.New("this is no backup of a registry")
	}
	view, err := registry.ReadBackup(unpacked)
	if err == nil {
		err = view.Whole()
	}
	switch {
	case errors.Is(err, registry.ErrSnapshotVersion):
		return view, errors.New("the backup was written by a newer version: use the build that wrote it or a newer one")
	case err != nil:
		return view, errors.New("the backup is damaged: it is cut or altered; take another one")
	}
	return view, nil
}

func (a *app) restoreCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{Use: "restore FILE|-", Short: "Restore the registry of a new cluster from a backup", Args: cobra.ExactArgs(1),
		Long: `Restore puts a backup into the registry, on all coordinators alike. It refuses a
registry that holds anything, unless --force says that all of it may go, and a
file that is damaged or was written by a newer version. Tasks that were open go on;
the members of the cluster stay.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var file []byte
			var err error
			if args[0] == "-" {
				file, err = io.ReadAll(a.in)
			} else {
				file, err = os.ReadFile(args[0])
			}
			if err != nil {
				return wrongInput(fmt.Errorf("read the backup: %w", err))
			}
			view, err := readBackup(file)
			if err != nil {
				return wrongInput(fmt.Errorf("%s: %w", args[0], err))
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			done, err := client.Restore(cmd.Context(), file, force)
			if err != nil {
				return a.explain(err)
			}
			if done.Content != view.Content() {
				return fmt.Errorf("what was restored has the hash %s, the backup %s: the coordinators are of another version", done.Content, view.Content())
			}
			if a.json {
				return writeJSON(a.out, done)
			}
			_, err = fmt.Fprintf(a.out, "restored %s in %s, %s of coefficients and %s; all of it holds at entry %d\n", counted(done.Cells, "cell"),
				counted(done.Sweeps, "sweep"), counted(done.Coefficients, "group"), counted(done.Programs, "program"), done.Index)
			return err
		}}
	c.Flags().BoolVar(&force, "force", false, "replace a registry that is not empty")
	return c
}

func (a *app) watchCommand() *cobra.Command {
	var since int64
	var kinds string
	c := &cobra.Command{Use: "watch", Short: "Follow changes as they are committed, one JSON document a line", Args: cobra.NoArgs,
		Long: `Watch prints each change on a line: coefficients, and with --kinds boundaries,
sweeps and programs. It goes on at another coordinator when one stops, where it
was. A line's index is the position to go on from with --since.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			options := api.WatchOptions{Kinds: strings.Split(kinds, ",")}
			if since >= 0 {
				from := uint64(since)
				options.Since = &from
			}
			lines := json.NewEncoder(a.out)
			lines.SetEscapeHTML(false)
			return a.explain(client.Watch(cmd.Context(), options, func(e api.Event) error { return lines.Encode(e) }))
		}}
	c.Flags().Int64Var(&since, "since", -1, "the position after which changes are wanted, 0 for all that is there (default: from now on)")
	c.Flags().StringVar(&kinds, "kinds", "coefficients", "kinds of changes, separated by commas: coefficients, boundaries, sweeps, programs")
	return c
}
