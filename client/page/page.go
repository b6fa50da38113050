// Package page has the files of the page, for the gateway of a fleet.
package page

import "embed"

// Dist is what src/ builds to.
//
//go:embed dist
var Dist embed.FS
