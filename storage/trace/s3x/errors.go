package s3x

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// classify puts the sentinel and the option to change in front of an error of
// the client. Errors that fit no sentinel (no connection, the store's own
// trouble) pass unchanged: they may be gone on the next try.
func (d *Driver) classify(err error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return classifyConnection(err)
	}
	switch answer.Code {
	case minio.NoSuchKey:
		return fmt.Errorf("%w: %w", trace.ErrNotFound, err)
	case minio.NoSuchBucket:
		return refused(fmt.Sprintf("option bucket: %s does not exist", d.config.Bucket), err)
	case "BucketAlreadyExists", "InvalidBucketName":
		return refused(fmt.Sprintf("option bucket: %s cannot be ours", d.config.Bucket), err)
	case "InvalidAccessKeyId", "XAdminUserNotFound": // the second is versitygw's
		return refused("option access key: the store does not know "+d.config.AccessKey, err)
	case "SignatureDoesNotMatch":
		return refused("option secret key: it does not belong to access key "+d.config.AccessKey, err)
	case minio.AccessDenied, "AllAccessDisabled", "AccountProblem":
		return refused(fmt.Sprintf("option access key: %s may not do this in bucket %s", d.config.AccessKey, d.config.Bucket), err)
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", minio.InvalidRegion:
		return refused("option region: the bucket is in another"+hint(answer.Region), err)
	case "NotImplemented", "InvalidDigest", "XAmzContentSHA256Mismatch":
		return refused("option checksum: the store does not take this kind of transfer, try "+ChecksumMD5, err)
	case "RequestTimeTooSkewed":
		return d.skewed(err)
	case "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "StorageFull":
		return fmt.Errorf("%w: %w", trace.ErrFull, err)
	}
	if answer.StatusCode == http.StatusInsufficientStorage {
		return fmt.Errorf("%w: %w", trace.ErrFull, err)
	}
	return err
}

func hint(region string) string {
	if region == "" {
		return ""
	}
	return ": " + region
}

// classifyConnection names the option behind a connection that can never work.
func classifyConnection(err error) error {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return refused("option ca file: the store's certificate is signed by an authority that is not trusted here", err)
	case errors.As(err, &host), errors.As(err, &invalid):
		return refused("option url: the store's certificate is not valid for this address", err)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return refused("option url: the store speaks http, not https", err)
	}
	return err
}

func refused(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", trace.ErrRefused, what, err)
}

// skewed asks the store what time it is. Without an answer that is said.
func (d *Driver) skewed(err error) error {
	here := time.Now().UTC().Format(time.RFC3339)
	there := "not told"
	if response, errGet := (&http.Client{Transport: d.transport, Timeout: 5 * time.Second}).Get(d.config.URL); errGet == nil {
		response.Body.Close()
		if date, errDate := http.ParseTime(response.Header.Get("Date")); errDate == nil {
			there = date.UTC().Format(time.RFC3339)
		}
	}
	return fmt.Errorf("%w: here %s, there %s; check NTP on this machine: %w", trace.ErrClockSkew, here, there, err)
}
