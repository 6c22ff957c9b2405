"""Writes small tables with something in them that people's tables have."""
import random

random.seed(7)


def write(path, head, lines, mark=","):
    with open(path, "w", encoding="utf-8") as f:
        for line in ([head] if head else []) + lines:
            f.write(mark.join(map(str, line)) + "\n")


def classes(n):
    for i in range(n):
        a, b = random.randint(0, 99), random.randint(0, 99)
        yield [a, b, "yes" if a > b else "no"]


def numbers(n):
    for _ in range(n):
        a, b = random.randint(0, 99), random.uniform(0, 9)
        yield [a, round(b, 2), round(100000 + 300 * a + 900 * b, 1)]


BOTH = list(classes(400))
write("classes.csv", ["a", "b", "y"], BOTH)
write("semicolon.csv", ["a", "b", "y"], BOTH, ";")
write("tab.csv", ["a", "b", "y"], BOTH, "\t")
write("blank.csv", ["a", "b", "y"], BOTH, " ")
write("bare.csv", None, BOTH)
write("two_rows.csv", ["a", "b", "y"], BOTH[:2])
write("one.csv", ["a", "b", "y"], [[a, b, "yes"] for a, b, _ in BOTH])
write("rare.csv", ["a", "b", "y"], BOTH + [[1, 2, "once"]])
write("words.csv", ["a", "b", "y"], BOTH + [[1, "two", "no"]])
write("class_gaps.csv", ["a", "b", "y"],
      [[a, b, "" if i % 10 == 4 else y] for i, (a, b, y) in enumerate(BOTH)])
marks = ["NA", "?", "-", "null", "N/A", "NaN", ""]
write("na.csv", ["a", "b", "y"],
      [[marks[i // 9 % 7] if i % 9 == 3 else a, b, y]
       for i, (a, b, y) in enumerate(BOTH)])
write("infinite.csv", ["a", "b", "y"],
      [[a, "inf" if i == 11 else b, y] for i, (a, b, y) in enumerate(BOTH)])
write("odd.csv",
      ["row", "same", "empty", "name", "mixed", "comma", "gone", "id", "tells",
       "a", "b", "y"],
      [[i + 1, 5, "", f"name {i}", "none" if i == 30 else i % 13,
        f'"{i % 17},5"', "" if i % 5 else i % 3, (i * 7919) % 100003,
        1 if y == "yes" else 0, a, b, y] for i, (a, b, y) in enumerate(BOTH)])

ROWS = list(numbers(400))
write("numbers.csv", ["a", "b", "y"], ROWS)
write("gaps.csv", ["a", "b", "y"],
      [[a, b, "NA" if i % 2 else y] for i, (a, b, y) in enumerate(ROWS)])
write("infinite_label.csv", ["a", "b", "y"],
      [[a, b, "inf" if i == 2 else y] for i, (a, b, y) in enumerate(ROWS)])
write("empty_label.csv", ["a", "b", "y"], [[a, b, ""] for a, b, _ in ROWS])
write("stars.csv", ["a", "b", "stars"],
      [[a, b, 1 + a // 20] for a, b, _ in ROWS])
write("dated.csv", ["when", "w", "y"],
      [[f"20{10 + i % 9}-{1 + i % 12:02d}-{1 + i % 28:02d}", 1 + i % 2,
        1000 * (1 + i % 12) + i % 7] for i in range(400)])

for name in ("classes", "numbers"):
    with open(name + ".yaml", "w", encoding="utf-8") as out:
        out.write(f"""model: {{canned: dnn, hidden: [16]}}
optimizer: {{learning_rate: 0.02}}
data:
  train: {{source: csv, files: {name}.csv, label: y, batch: 32}}
run: {{epochs: 30}}
""")
