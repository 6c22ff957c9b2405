"""Is every element of the pages closed, every id used once, every link to a
section good?"""
import html.parser
import sys

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Check(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.bad = [], [], [], []

    def note(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name == "href" and value.startswith("#"):
                self.links.append(value[1:])
            if name in ("points", "d") and "nan" in value:
                self.bad.append("nan in a curve")

    def handle_starttag(self, tag, attrs):
        self.note(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.note(attrs)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(f"</{tag}> closes nothing at {self.getpos()}")


for path in sys.argv[1:]:
    c = Check()
    c.feed(open(path, encoding="utf-8").read())
    c.bad += [f"<{x}> is not closed" for x in c.open]
    c.bad += [f"id {x} twice" for x in set(c.ids) if c.ids.count(x) > 1]
    c.bad += [f"#{x} leads nowhere" for x in c.links if x not in c.ids]
    print("\n".join(c.bad) if c.bad else "good")
