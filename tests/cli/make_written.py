#!/usr/bin/env python3
"""Tables as people write them, in the current folder."""
import random

random.seed(1)
ROWS = []
for i in range(200):
    a = random.gauss(0, 1)
    b = random.choice(["red", "green", "blue"])
    ROWS.append((i, a, b, "yes" if a + (b == "red") > 0.3 else "no"))


def write(name, header, row, delimiter=","):
    with open(name, "w", encoding="utf-8") as f:
        f.write(delimiter.join(header) + "\n")
        for r in ROWS:
            f.write(delimiter.join(map(str, row(*r))) + "\n")


write("money.csv", ["id", "cost", "share", "income", "y"],
      lambda i, a, b, y: (f"t{i:03}", f'"${50000 + 9000 * a:,.2f}"',
                          f"{50 + 9 * a:.1f}%",
                          f'"{round(50000 - 9000 * a):,}"', y))
write("euro.csv", ["cost", "count", "y"],
      lambda i, a, b, y: (f"{5000 + 900 * a:,.2f} €".translate(
          str.maketrans(",.", ".,")), f"{4000 + i * i:,}".replace(",", "."), y), ";")
write("thousands.csv", ["count", "y"],
      lambda i, a, b, y: (f"{4000 + i * i:,}", y), ";")
write("mixed.csv", ["cost", "b", "y"],
      lambda i, a, b, y: (f"{'$€'[i == 70]}{50 + 9 * a:.1f}", b, y))
write("none.csv", ["a", "weight", "b", "y"],
      lambda i, a, b, y: ("None" if i % 10 == 3 else f"{a:.5f}",
                          f"{50 + 20 * a:.1f} kg", b, y))
write("nines.csv", ["a", "b", "y"],
      lambda i, a, b, y: (-999 if i % 5 == 0 else f"{a:.3f}",
                          "#N/A" if i % 7 == 0 else f"{a:.3f}", y))
write("classes.csv", ["a", "when", "name", "y", "case", "price"],
      lambda i, a, b, y: (f"{a:.4f}", f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}",
                          f"n{i}", y, y.upper() if i == 30 else y,
                          "gone" if i == 60 else f"{a * 90:.3f}"))
write("lines.csv", ["note", "a", "y"],
      lambda i, a, b, y: ('"one\nand ""two"""' if i % 2 else "three",
                          f"{a:.4f}", y))
