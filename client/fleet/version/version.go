// Package version has the version of the release.
package version

// Version is that of daemon/config/version.h.
const Version = "0.1.0"
