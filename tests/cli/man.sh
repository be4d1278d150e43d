# The man page: made from its Markdown, and every command and option of --help is in it.
. "$TESTS/lib.bash"
root=$TESTS/../..
"$root/tools/man" --check && echo "docs/sluice.1 is up to date"
for command in train predict eval generate convert plan check bench info devices; do
    grep -q "^\*\*$command\*\*" "$root/docs/sluice.1.md" || echo "$command is missing"
    "$SLUICE" $command --help >help
    cat help >>helps
    grep -oE '^  --[a-z-]+' help | while read -r option; do
        grep -qE "^\`.*$option\`" "$root/docs/sluice.1.md" || echo "$command $option is missing"
    done
done
grep -oE '`--[a-z-]+`' "$root/docs/sluice.1.md" | tr -d '`' | sort -u | while read -r option; do
    [ "$option" = --version ] && continue
    grep -qE "^  $option( |\[|\$)" helps || echo "$option is in the man page only"
done
