# Every help text, and the version.
. "$TESTS/lib.bash"
try --version
try --help
for command in train predict eval generate convert plan check bench info devices; do
    try $command --help
    "$SLUICE" help $command | cmp - <("$SLUICE" $command --help)
done
