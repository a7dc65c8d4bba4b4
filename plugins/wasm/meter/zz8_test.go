package meter
import ("testing";"os";"strconv";"fmt")
func TestZLong(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEEDS")); s0, _ := strconv.Atoi(os.Getenv("FROM"))
	for seed := s0; seed < s0+n; seed++ {
		t.Run("", func(t *testing.T) { checkProgram(t, uint64(seed)) })
		if t.Failed() { fmt.Println("SEED", seed); t.FailNow() }
	}
	fmt.Println("ok", n)
}
