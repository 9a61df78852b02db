"""Heart disease at four hospitals, from the published tables of 1988; other cells are missing at each."""

from fedstride import part
from fedstride.tasks.datasets.nodes import own_table

COLUMNS = [
    "age",  # years
    "sex=female|male",
    "pain=typical|atypical|other|none",
    "pressure",  # at rest, mmHg
    "cholesterol",  # mg/dL
    "sugar=low|high",  # fasting, above 120 mg/dL
    "ecg=normal|abnormal|hypertrophy",
    "rate",  # highest heart rate reached
    "angina=no|yes",  # by exercise
    "depression",  # of the ST segment by exercise, mm
    "slope=up|flat|down",
    "vessels",  # coloured by fluoroscopy, 0 to 3
    "thallium=normal|fixed|reversible",
]


@part(task="heart")
def heart():
    """Is there heart disease, from 13 findings?"""
    return own_table(columns=COLUMNS, target="disease", classes=["no", "yes"], missing="mean")
