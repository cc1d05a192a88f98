import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Counts generated words in several threads, and produces much garbage for the collector. */
class Words {
    static long count(int seed) {
        Map<String, Integer> counts = new HashMap<>();
        long state = seed;
        for (int i = 0; i < 60_000; i++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            counts.merge(Long.toString((state >>> 33) % 5000, 36), 1, Integer::sum);
        }
        long sum = 0;
        for (Map.Entry<String, Integer> entry : counts.entrySet()) {
            sum += (long) entry.getKey().hashCode() * entry.getValue();
        }
        return sum;
    }

    public static void main(String[] words) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(3);
        System.out.println("ready");
        long all = 0;
        for (int step = 0; step < 240; step++) {
            List<Future<Long>> parts = new ArrayList<>();
            for (int part = 0; part < 3; part++) {
                int seed = 3 * step + part;
                parts.add(pool.submit(() -> count(seed)));
            }
            for (Future<Long> part : parts) {
                all = 31 * all + part.get();
            }
        }
        System.out.println(all);
        pool.shutdown();
    }
}
