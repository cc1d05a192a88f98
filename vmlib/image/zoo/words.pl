use strict;
use warnings;

$| = 1;
print "ready\n";
my ($state, $text, %seen) = (1, q());
for my $step (1 .. 12) {
    for (1 .. 30_000) {
        $state = ($state * 1103515245 + 12345) % 2147483648;
        my $word = sprintf '%x', $state >> 8;
        $seen{$1}++ while $word =~ /([a-f]+\d)/g;
        $text .= $word if $word =~ /^(\d)(?:.*)\1$/;
    }
    $text = substr reverse(sort { $a cmp $b } $text =~ /..../g), 0, 5_000;
}
my $sum = 0;
$sum = ($sum * 31 + $seen{$_} + length) % 1000003 for sort keys %seen;
print length $text, " $sum\n";
