package s3x

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// Checksums that guard a transfer.
const (
	ChecksumCRC32C = "crc32c"
	ChecksumMD5    = "md5"
)

// maxTries is how often one request is sent. The callers have their own
// patience (an agent keeps what it could not store), so few tries suffice.
const maxTries = 4

// Config says where the store is. It never shows its secret key: not when it
// is printed in any way, logged, or put into JSON.
type Config struct {
	// URL is the store's address: http or https, a host, and a port where it
	// is not the scheme's own. No path, no user.
	URL string `json:"url"`
	// PublicURL is the store's address as those see it who fetch from it by
	// themselves (Driver.Link), in the form of URL; empty is URL, unless that is
	// an address of this machine alone.
	PublicURL string `json:"public_url,omitempty"`
	// Bucket is made when it does not exist.
	Bucket string `json:"bucket"`
	// Region is where the bucket lies; empty asks the store.
	Region string `json:"region,omitempty"`
	// AccessKey and SecretKey sign every request.
	AccessKey string `json:"access_key"`
	SecretKey string `json:"-"`
	// CAFile holds certificates (PEM) that are trusted beside the system's.
	CAFile string `json:"ca_file,omitempty"`
	// PathStyle puts the bucket into the path (http://host/bucket). Off, it
	// goes into the host name where the store is known to want that.
	PathStyle bool `json:"path_style,omitempty"`
	// Checksum guards transfers: crc32c (default), or md5 for stores that
	// refuse the newer checksum headers.
	Checksum string `json:"checksum,omitempty"`
}

// Validate returns every problem of c at once. It reads CAFile.
func (c Config) Validate() error {
	var errs []error
	if _, err := c.endpoint(); err != nil {
		errs = append(errs, err)
	}
	if c.PublicURL != "" {
		if _, err := endpointOf("public url", c.PublicURL); err != nil {
			errs = append(errs, err)
		}
	}
	if err := s3utils.CheckValidBucketNameStrict(c.Bucket); err != nil {
		errs = append(errs, fmt.Errorf("option bucket: %q: %w", c.Bucket, err))
	}
	if c.AccessKey == "" {
		errs = append(errs, errors.New("option access key: it is empty"))
	}
	if c.SecretKey == "" {
		errs = append(errs, errors.New("option secret key: it is empty"))
	}
	if _, err := c.authorities(); err != nil {
		errs = append(errs, err)
	}
	switch c.Checksum {
	case "", ChecksumCRC32C, ChecksumMD5:
	default:
		errs = append(errs, fmt.Errorf("option checksum: %q is not one of %s, %s", c.Checksum, ChecksumCRC32C, ChecksumMD5))
	}
	return errors.Join(errs...)
}

// endpoint takes the URL apart.
func (c Config) endpoint() (*url.URL, error) { return endpointOf("url", c.URL) }

// endpointOf takes an option's URL apart. One with a password in it is not
// repeated.
func endpointOf(option, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("option %s: it cannot be parsed", option)
	case u.User != nil:
		return nil, fmt.Errorf("option %s: it must not hold a user or password, use the access key and secret key", option)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("option %s: %q must begin with http:// or https://", option, text)
	case u.Hostname() == "":
		return nil, fmt.Errorf("option %s: %q has no host", option, text)
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("option %s: %q must end after the host and port; the bucket has its own option", option, text)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("option %s: port %s is not between 1 and 65535", option, port)
		}
	}
	return u, nil
}

// authorities is the system's pool with CAFile added; nil without a CAFile.
func (c Config) authorities() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("option ca file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("option ca file: %s holds no certificate in PEM form", c.CAFile)
	}
	return pool, nil
}

// client builds the connection's parts; nothing is sent yet.
func (c Config) client() (*minio.Core, *http.Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	u, err := c.endpoint()
	if err != nil {
		return nil, nil, err
	}
	secure := u.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, nil, err
	}
	transport.DialContext = restless(transport.DialContext)
	authorities, err := c.authorities()
	if err != nil {
		return nil, nil, err
	}
	if authorities != nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}
	}
	lookup := minio.BucketLookupAuto
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:           credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""),
		Secure:          secure,
		Transport:       transport,
		Region:          c.Region,
		BucketLookup:    lookup,
		TrailingHeaders: c.Checksum != ChecksumMD5,
		MaxRetries:      maxTries,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("option url: %w", err)
	}
	return core, transport, nil
}

// String shows c without its secret key. A URL that holds a password is not
// shown either.
func (c Config) String() string {
	address := c.URL
	if _, err := c.endpoint(); err != nil {
		address = "(bad url)"
	}
	return fmt.Sprintf("%s bucket %s access key %s", address, c.Bucket, c.AccessKey)
}

// GoString is String, so that %#v shows no secret.
func (c Config) GoString() string { return c.String() }

// LogValue is String, so that a logger shows no secret.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
