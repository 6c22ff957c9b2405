"""Writes flats.csv, new.csv and flats.yaml: an own table and what to do with
it."""
import random

random.seed(3)


def rows(n):
    for _ in range(n):
        area = random.choice(["center", "harbour", "hills"])
        size, age = random.randint(20, 160), random.randint(0, 90)
        worth = {"center": 3, "harbour": 2.2, "hills": 1.6}[area]
        price = size * worth - age * 0.8 + random.gauss(0, 20)
        word = "high" if price > 220 else "middle" if price > 140 else "low"
        yield [size, age, area, random.choice(["yes", "no"]), word]


def write(path, names, lines):
    with open(path, "w", encoding="utf-8") as f:
        f.write(",".join(names) + "\n")
        for line in lines:
            f.write(",".join(map(str, line)) + "\n")


NAMES = ["size", "age", "area", "balcony", "price"]
write("flats.csv", NAMES, rows(900))
write("new.csv", NAMES[:-1], [row[:-1] for row in rows(5)])
with open("flats.yaml", "w", encoding="utf-8") as out:
    out.write("""model: {canned: dnn, hidden: [32, 16]}
optimizer: {type: adam, learning_rate: 0.01}
data:
  train: {source: csv, files: flats.csv, label: price, batch: 32}
run: {epochs: 20}
""")
