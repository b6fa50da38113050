#!/usr/bin/env bash
# Writes the descriptors of the protos as they are now into tests/compat/released/: part of making a release (deploy/release).
#
#   tests/compat/release_protos.sh
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

# The protos that ours import come with the build.
google=$(bazel info output_base)/external/google_protos
out=tests/compat/released
mkdir -p $out

# write FOLDER PROTO NAME
write() {
  protoc -I"$1" -I"$google" -I/usr/include --include_imports --descriptor_set_out=/dev/stdout "$2" |
    protoc --decode=google.protobuf.FileDescriptorSet -I/usr/include google/protobuf/descriptor.proto |
    # Names for JSON follow from the fields' own.
    grep -v '^ *json_name: ' >"$out/$3.txtpb"
}
write proto stackd/v1/stackd.proto stackd_v1
write proto stackd/v1/fleet.proto fleet_v1
write . daemon/store/raw_capture.proto raw_capture
