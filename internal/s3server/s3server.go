// Package s3server runs an S3 server for a fleet on one machine: versitygw over
// a folder. It owns that folder and, while Run is at work, the whole process:
// the server changes the working directory, allows one instance in a process
// and writes to standard output. So Run belongs in a process of its own, a
// re-execution of this binary (a hidden subcommand, or a test's child).
//
// It refuses to be a production store. Files are written without fsync: a
// killed server loses nothing that it acknowledged, a power cut may.
//
// Start reading at Config, then Run.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
	"golang.org/x/sys/unix"
)

// maxCopy is the largest object that S3 lets one request copy. The server
// refuses every copy when it is not told.
const maxCopy = 5 << 30

// portTries is how often another free port is tried when one was taken between
// choosing and listening.
const portTries = 20

// Config says what to serve.
type Config struct {
	// Dir keeps the data; it is made. Buckets are folders of Dir/buckets.
	Dir string
	// Addr is host:port. Port 0 takes a free one; empty is 127.0.0.1:0.
	Addr string
	// AccessKey and SecretKey are the only credentials that are accepted.
	AccessKey string
	SecretKey string
	// CertFile and KeyFile are PEM files; with them only TLS is spoken.
	CertFile, KeyFile string
	// AccountsDir, if not empty, keeps further accounts, whom the policy of a
	// bucket may let do some of what the keys above can.
	AccountsDir string
	// Region is the region that clients must name; empty is us-east-1.
	Region string
	// Ready is called once, from another goroutine, when the server listens:
	// with its address as host:port. It must not block.
	Ready func(addr string)
}

// Run serves until ctx ends, and returns nil then. Standard output is turned
// to standard error in the meantime, so that what the server prints does not
// end up in a document of ours. Relative paths of the caller are broken once it
// has started, see the package comment.
func Run(ctx context.Context, config Config) error {
	if config.AccessKey == "" || config.SecretKey == "" {
		return errors.New("run s3 server: it needs an access key and a secret key")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return fmt.Errorf("run s3 server: %w", err)
	}
	stdout := os.Stdout
	os.Stdout = os.Stderr
	defer func() { os.Stdout = stdout }()

	if anyPort(config.Addr) {
		err = whileTaken(ctx, func() error { return serve(ctx, config, dir) })
	} else {
		err = serve(ctx, config, dir)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return fmt.Errorf("run s3 server in %s: %w", dir, err)
}

// whileTaken runs serve again while another process has its port.
func whileTaken(ctx context.Context, serve func() error) error {
	for range portTries - 1 {
		if err := serve(); !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
			return err
		}
	}
	return serve()
}

// serve opens the folder and runs the server on one address.
func serve(ctx context.Context, config Config, dir string) error {
	addr, err := choose(config.Addr)
	if err != nil {
		return err
	}
	backend, err := open(dir)
	if err != nil {
		return err
	}
	server := &embedgw.Config{
		RootUserAccess:    config.AccessKey,
		RootUserSecret:    config.SecretKey,
		Region:            config.Region,
		CertFile:          config.CertFile,
		KeyFile:           config.KeyFile,
		IAMDir:            config.AccountsDir,
		Ports:             []string{addr},
		MaxConnections:    1024,
		MaxRequests:       512,
		MultipartMaxParts: 10_000,
		Quiet:             true,
		KeepAlive:         true,
		IAMCacheDisable:   true,
	}
	if config.Ready != nil {
		server.S3Options = []s3api.Option{s3api.WithOnListen(func() { config.Ready(addr) })}
	}
	return embedgw.RunVersityGW(ctx, backend, server)
}

// open returns the server's view of dir. Objects' metadata lies in extended
// attributes where the file system has them, else in a folder beside the
// buckets; a store that began one way stays that way.
func open(dir string) (*posix.Posix, error) {
	buckets, sidecar := filepath.Join(dir, "buckets"), filepath.Join(dir, "metadata")
	if err := os.MkdirAll(buckets, 0o755); err != nil {
		return nil, err
	}
	options := posix.PosixOpts{CopyObjectThreshold: maxCopy}
	_, err := os.Stat(sidecar)
	if errors.Is(err, fs.ErrNotExist) && attributesWork(buckets) {
		return posix.New(buckets, meta.XattrMeta{}, options)
	}
	if err := os.MkdirAll(sidecar, 0o755); err != nil {
		return nil, err
	}
	beside, err := meta.NewSideCar(sidecar)
	if err != nil {
		return nil, err
	}
	options.SideCarDir = sidecar
	return posix.New(buckets, beside, options)
}

// attributesWork tries to write an extended attribute: some file systems answer
// the question and refuse the deed.
func attributesWork(folder string) bool {
	const name = "user.oomfleet-probe"
	if unix.Setxattr(folder, name, []byte("1"), 0) != nil {
		return false
	}
	return unix.Removexattr(folder, name) == nil
}

func anyPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return addr == "" || err == nil && port == "0"
}

// choose replaces port 0 by a port that is free now: the server does not tell
// which one it took. Run tries again when another process was faster.
func choose(addr string) (string, error) {
	if !anyPort(addr) {
		return addr, nil
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
