"""Shows numbers of a result in JSON: counts as they are, scores as good (above
0.9) or not."""
import json
import sys

result = json.loads(sys.stdin.readlines()[-1])
scores = next(iter(result["weights"].values()))
for name in sys.argv[1:]:
    if name in result:
        print(name, result[name])
    else:
        print(name, "good" if scores[name] > 0.9 else scores[name])
