BEGIN {
    printf "ready\n"
    fflush()
    for (step = 1; step <= 12; step++) {
        for (i = 1; i <= 40000; i++)
            words[(i * 7919 + step) % 10007] = words[(i + step) % 10007] i % 10
        for (word in words)
            if (length(words[word]) > 40)
                words[word] = substr(words[word], 20)
    }
    n = asorti(words, sorted, "@ind_num_asc")
    sum = 0
    for (i = 1; i <= n; i++)
        for (j = 1; j <= length(words[sorted[i]]); j++)
            sum = (sum * 31 + substr(words[sorted[i]], j, 1) + i) % 1000003
    print n, sum
}
