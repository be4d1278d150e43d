# What the scripts of tests/cli share: source it first.
set -u

# Runs the command, prints what it prints and its exit code if that is not 0.
sluice() {
    "$SLUICE" "$@" 2>&1
    local code=$?
    [ $code -eq 0 ] || echo "exit $code"
}

# The same, showing the command.
try() {
    echo "\$ sluice $*"
    sluice "$@"
}

# Only the exit code and the number of lines on stderr, for sentences that name what varies.
exits() {
    local code
    "$SLUICE" "$@" >stdout.txt 2>stderr.txt
    code=$?
    echo "exit $code, $(wc -l <stderr.txt) line on stderr$(grep -qv '^sluice: .' stderr.txt && echo ', NOT a sentence of ours:' && cat stderr.txt)"
}

# N lines of words that are the same everywhere.
make_text() {
    awk -v n="$1" 'BEGIN {
        split("the a small old cat dog sees hears follows and so it then runs away", word, " ")
        s = 7
        for (line = 0; line < n; line++) {
            text = ""
            for (i = 0; i < 6; i++) {
                s = (s * 1103 + 12345) % 65536
                text = text (i ? " " : "") word[int(s / 64) % 14 + 1]
            }
            print text "."
        }
    }'
}

# Times, speeds and machine-dependent bytes out of what train prints.
without_times() {
    sed -E -e 's/ in [0-9]+( s|( min| h) [0-9]+ (s|min))/ in TIME/' -e '/^epoch .* lr /d' \
        -e 's/(loss|ppl|accuracy|perplexity) [0-9.]+/\1 NUMBER/g' -e 's/^memory .*/memory .../' -e 's/; kernel .*/; .../'
}

# Small and quick training options.
small=(--units 16 --layers 1 --batch 4 --steps 8 --epochs 2 --seed 3)

same() { # FILE FILE
    if cmp -s "$1" "$2"; then echo "$1 and $2 are the same"; else echo "$1 and $2 DIFFER"; fi
}

# Writes an .npy file: npy FILE TYPE SHAPE [VALUES...]; without values 0 1 2 ... / count.
npy() {
    python3 "$TESTS/npy.py" "$@"
}

# Sanitizers keep terabytes of address space.
not_with_sanitizers() {
    if grep -q __asan_init "$SLUICE" || grep -q __tsan_init "$SLUICE"; then
        echo "a limit of address space does not go with sanitizers"
        exit 77
    fi
}
