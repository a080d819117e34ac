#!/bin/sh
# Regenerates the certificates of these tests. Their keys open nothing.
set -eu
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"; }
touch "$scratch/index"
cat > "$scratch/ca.cnf" <<END
[ca]
default_ca = tests
[tests]
database = $scratch/index
new_certs_dir = $scratch
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[hub]
subjectAltName = IP:127.0.0.1, DNS:localhost
END
key "$scratch/ca-key.pem"
openssl req -x509 -new -key "$scratch/ca-key.pem" -subj "/CN=Stepwatch tests" -days 36500 -out ca.pem
key hub-key.pem
key other-key.pem
signed() { # name, from, until
    openssl req -new -key hub-key.pem -subj "/CN=hub" -out "$scratch/request"
    openssl ca -batch -notext -config "$scratch/ca.cnf" -extensions hub -keyfile "$scratch/ca-key.pem" -cert ca.pem \
        -in "$scratch/request" -startdate "$2" -enddate "$3" -out "$1"
}
signed hub.pem 20260101000000Z 20490101000000Z
signed renewed.pem 20260101000000Z 21250101000000Z
signed expired.pem 20250101000000Z 20250201000000Z
openssl pkcs8 -topk8 -in hub-key.pem -passout pass:test -out encrypted-key.pem
chmod 600 ./*-key.pem
