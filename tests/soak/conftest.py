import rules

keeper, nothing_left, nothing_of_boxes, stand_in, pytest_collection_modifyitems = rules.of_folder(__file__)
