"""Files that messages.txt gives to commands which cannot take them."""
import base64
import io
import random
import tarfile
import zipfile

for name in ("a.zip", "a.xlsx", "a.npz"):
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr("a.csv", "x,y\n1,2\n")
with open("a.parquet", "wb") as file:
    file.write(b"PAR1\x15" + bytes(64) + b"PAR1")
with open("secrets", "w") as file:
    file.write("root:*:20228:0:99999:7:::\nuser:!:20228:0:99999:7:::\n")

random.seed(1)
WORDS = "nice good fine great glad poor bad awful sad ugly".split()
with open("reviews.csv", "w") as file:
    file.write("review,good\n")
    for _ in range(100):
        good = random.random() < 0.5
        text = " ".join(random.choices(WORDS[:5] if good else WORDS[5:], k=6))
        file.write(f"{text},{'yes' if good else 'no'}\n")

# Two gray dots as JPEG.
DOT = base64.b64decode(
    "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAAMCAgICAgMCAgIDAwMDBAYEBAQEBAgGBgUGCQgKCgkI"
    "CQkKDA8MCgsOCwkJDRENDg8QEBEQCgwSExIQEw8QEBD/wAALCAABAAEBAREA/8QAFAABAAAAAAAA"
    "AAAAAAAAAAAACf/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AVN//2Q==")
with tarfile.open("pets.tar", "w") as archive:
    for i, pet in enumerate(("cat", "dog")):
        for ending, content in (("cls", pet.encode()), ("jpg", DOT)):
            member = tarfile.TarInfo(f"{i}.{ending}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
with open("pets.yaml", "w") as file:
    file.write("model: {layers: [flatten, {dense: 2}]}\n"
               "data: {train: {source: tar, files: pets.tar, batch: 2, "
               "size: [1, 1]}, "
               "holdout: 0}\n"
               "run: {steps: 2}\n")
